"""The words of which statements and queries are made: inline constants, typed parameters, the clock.

Pure Core constructs without a table. Every parameter is cast in the text, so that each driver sends it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Integer,
    SmallInteger,
    TableValuedAlias,
    Text,
    TypeDecorator,
    Uuid,
    bindparam,
    cast,
    column,
    func,
    literal_column,
)
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL
from sqlalchemy.sql.expression import Grouping

from sa_jobqueue.records import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy.types import TypeEngine

    from sa_jobqueue.states import JobStatus

#: It stands nowhere in JSON, within a string or without (RFC 7464).
_SEPARATOR = "\x1e"
#: What Python can hold in every time zone; PostgreSQL knows infinity and years BC as well.
_EARLIEST, _LATEST = "0001-01-02T00:00:00Z", "9999-12-30T00:00:00Z"


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


def readable(time: ColumnElement[Any]) -> ColumnElement[Any]:
    """A time of a row within what Python can hold, whatever other SQL wrote there: no driver and no sum fails on it."""
    earliest, latest = (cast(word(text), DateTime(timezone=True)) for text in (_EARLIEST, _LATEST))
    return func.greatest(func.least(time, latest), earliest)


def priorities() -> TableValuedAlias:
    """Every priority, the first first, in the column `priority` of `level`.

    For one branch each with an equality on it: across priorities an index on due times is read with all jobs of the
    future.
    """
    return (
        func.generate_series(number(HIGHEST_PRIORITY), number(LOWEST_PRIORITY))
        .table_valued(column("priority", SmallInteger))
        .render_derived(name="level")
    )


def interval(name: str) -> ColumnElement[Any]:
    """One duration as a parameter."""
    return value(name, INTERVAL)


def instant(name: str) -> ColumnElement[Any]:
    """One time as a parameter; NULL is before all times."""
    kind = DateTime(timezone=True)
    return func.coalesce(value(name, kind), cast(word("-infinity"), kind))


def value(name: str, kind: type[TypeEngine[Any]] | TypeEngine[Any]) -> ColumnElement[Any]:
    """A parameter of this type, which may be NULL."""
    return cast(bindparam(name, type_=kind), kind)


def array(name: str, item: type[TypeEngine[Any]] | TypeEngine[Any]) -> ColumnElement[Any]:
    """An array parameter, cast in the text: an empty or all-NULL list has no type of its own."""
    return value(name, ARRAY(item, dimensions=1))


def texts(name: str) -> ColumnElement[Any]:
    """An array parameter of JSON texts, none of them NULL, sent as one text: `joined()`.

    Their quotes make them the most expensive array there is: drivers escape each, which takes longer than all the rest.
    """
    return func.string_to_array(value(name, Text), func.chr(number(ord(_SEPARATOR))))


def joined(documents: Iterable[str]) -> str:
    """The value of a `texts()` parameter."""
    return _SEPARATOR.join(documents)


def keys(name: str, item: type[BigInteger | Uuid[UUID]]) -> ColumnElement[Any]:
    """An array parameter of ids or tokens, none of them NULL, sent as one text.

    Batches carry hundreds of them, and drivers write, quote and escape each by itself: six times the work.
    """
    return cast(bindparam(name, type_=_Keys(item)), ARRAY(item, dimensions=1))


def element(
    name: str, item: type[BigInteger | DateTime], place: ColumnElement[int], *, missing: str
) -> ColumnElement[Any]:
    """What stands at a place, from 0, of an array parameter of ids or times, which may be left out; else `missing`.

    Sent as one text, where None is `missing` as well.
    """
    kind = item(timezone=True) if issubclass(item, DateTime) else item()
    given = bindparam(name, value=[], type_=_Optional(kind, dimensions=1))
    whole: ColumnElement[Any] = Grouping(cast(given, ARRAY(kind, dimensions=1)))
    return func.coalesce(whole[place + number(1)], cast(word(missing), kind))


class _Keys(TypeDecorator[Any]):
    """Ids or tokens as PostgreSQL writes an array; nothing in them needs quotes."""

    impl = Text
    cache_ok = True

    def __init__(self, item: type[BigInteger | Uuid[UUID]]) -> None:
        super().__init__()
        self.item = item

    def process_bind_param(self, value: Any, dialect: Any) -> str:  # noqa: ARG002 - SQLAlchemy's signature
        texts = [key.hex for key in value] if self.item is Uuid else map(int.__repr__, value)
        return f"{{{','.join(texts)}}}"


class _Optional(TypeDecorator[Any]):
    """Ids or times as PostgreSQL writes an array, any of which may be missing; the server reads it once, as it arrives."""

    impl = ARRAY
    cache_ok = True

    def bind_processor(self, dialect: Any) -> Any:
        return _array_text if dialect.driver == "psycopg" else None  # asyncpg takes arrays as lists alone


def _array_text(value: Any | None) -> str:
    def text(one: int | datetime | None) -> str:
        return "NULL" if one is None else str(one) if isinstance(one, int) else one.isoformat()

    return f"{{{','.join(map(text, value or ()))}}}"
