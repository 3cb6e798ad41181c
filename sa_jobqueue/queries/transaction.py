"""What became of a transaction, asked afterwards and by anybody: where the row that would tell is gone."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, bindparam, cast, func, select
from sqlalchemy.types import UserDefinedType

if TYPE_CHECKING:
    from sqlalchemy import Executable


class _Xid8(UserDefinedType[int]):
    """A transaction id with its epoch; no driver knows the type, and only text is cast to it."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


@cache
def status() -> Executable:
    """committed, aborted or in progress for the transaction `xid` (as text); NULL when the server has forgotten it.

    Refused for an id that this server has not reached yet, as one that was promoted meanwhile may not have.
    """
    return select(func.pg_xact_status(cast(cast(bindparam("xid", type_=Text), Text), _Xid8)))
