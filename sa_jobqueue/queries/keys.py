"""Who holds these unique keys."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, any_, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array

if TYPE_CHECKING:
    from sqlalchemy import Select

#: Unbounded or nearly so, and mapped `deferred`: read when somebody asks for them.
_LARGE = frozenset({"payload", "result", "errors"})


@cache
def holders_of_keys() -> Select[Any]:
    """The rows that hold the unique keys in `:keys`, in any order, without their large columns."""
    schema_in_use()
    return select(*(column for column in jobs.c if column.name not in _LARGE)).where(
        jobs.c.unique_key == any_(array("keys", Text))
    )
