"""The words of which statements and queries are made: inline constants, typed parameters, the clock.

Pure Core constructs without a table. Every parameter is cast in the text, so that each driver sends it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, DateTime, Integer, Text, bindparam, cast, func, literal_column
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

    from sa_jobqueue.states import JobStatus


def word(value: str) -> ColumnElement[str]:
    """A constant of ours in the text of the statement: nothing to send, nothing for the planner to guess."""
    return literal_column(f"'{value}'", Text)


def status(value: JobStatus) -> ColumnElement[str]:
    """A status, inline: only a literal matches a partial index under a generic plan."""
    return word(value)


def number(value: int) -> ColumnElement[int]:
    """A constant in the text, where a parameter would hide it from the planner."""
    return literal_column(str(value), Integer)


def moment() -> ColumnElement[Any]:
    """The start of this statement. now() is the start of the transaction, which may be long past."""
    return func.statement_timestamp(type_=DateTime(timezone=True))


def interval(name: str) -> ColumnElement[Any]:
    """One duration as a parameter."""
    return cast(bindparam(name, type_=INTERVAL), INTERVAL)


def array(name: str, item: type[TypeEngine[Any]] | TypeEngine[Any]) -> ColumnElement[Any]:
    """An array parameter, cast in the text: an empty or all-NULL list has no type of its own."""
    kind: ARRAY[Any] = ARRAY(item, dimensions=1)
    return cast(bindparam(name, type_=kind), kind)
