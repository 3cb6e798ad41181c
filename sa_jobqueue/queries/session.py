"""Who answers on this connection?"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy import Select


@cache
def backend_pid() -> Select[Any]:
    """The process that runs this very statement."""
    return select(func.pg_backend_pid())
