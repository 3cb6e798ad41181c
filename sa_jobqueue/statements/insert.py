"""The one INSERT of the library: constant text for any number of jobs, keyed or not, and another for a job alone.

Columns travel as arrays, so 1,000 jobs are one statement and one entry in every statement cache. (A VALUES list takes
two to three times as long; insertmanyvalues with ON CONFLICT hands out wrong ids or loses rows.) `unnest` pads a
shorter array with NULL: a column in which every job has the default travels as an empty one, and the default is here.

A job alone travels as plain values. Arrays would take 0.4 ms more, half a commit: an array parameter is worth planning
anew to the server, each time, and every driver writes it in Python.

The look-up of the key comes before `ON CONFLICT`: without it the INSERT waits for whoever has locked the row that
holds the key. As a scalar sub-select it always probes the index; NOT EXISTS with an OR beside it may be planned as a
hash of the whole table. `ON CONFLICT` stays for the race, and waits then, as every unique index does.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime, Integer, SmallInteger, Text, cast, func, or_, select
from sqlalchemy.dialects.postgresql import INTERVAL, JSONB, insert

from sa_jobqueue.batch import columns_of
from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.records import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PAYLOAD_VERSION,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
)
from sa_jobqueue.sql import array, joined, number, texts, value, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.dialects.postgresql import Insert
    from sqlalchemy.sql.dml import ReturningInsert
    from sqlalchemy.sql.type_api import TypeEngine

    from sa_jobqueue.records import NewJob

_TIMESTAMP = DateTime(timezone=True)

#: Field of NewJob, type on the way, and the value that need not travel.
COLUMNS: tuple[tuple[str, type[TypeEngine[Any]] | TypeEngine[Any], Any], ...] = (
    ("kind", Text, ...),
    ("payload", Text, ...),
    ("queue", Text, DEFAULT_QUEUE),
    ("payload_version", Integer, DEFAULT_PAYLOAD_VERSION),
    ("priority", SmallInteger, DEFAULT_PRIORITY),
    ("max_attempts", Integer, DEFAULT_MAX_ATTEMPTS),
    ("run_at", _TIMESTAMP, None),
    ("delay", INTERVAL, None),
    ("expires_at", _TIMESTAMP, None),
    ("idempotency_key", Text, None),
    ("key_scope", Text, None),
    ("unique_key", Text, None),
    ("trace_context", Text, None),
)
_KEYED = tuple(name for name, _, _ in COLUMNS)
_FREE = tuple(name for name in _KEYED if name not in ("idempotency_key", "key_scope", "unique_key"))
#: What the database decides about a new row, and the key by which the row is known.
SHOWN = ("id", "unique_key", "run_at", "created_at", "updated_at")


@cache
def insert_jobs(*, shown: bool = True) -> ReturningInsert[*tuple[Any, ...]]:
    """Insert the rows of `insert_parameters()` in their order; answers with those that were inserted, in any order.

    A row is left out when its unique key is taken. Raises nothing for a duplicate under READ COMMITTED; under
    REPEATABLE READ a holder that committed after the snapshot is SQLSTATE 40001. Where no object is going to show the
    rows, the answer is their id and unique key alone.
    """
    schema_in_use()
    given = (
        func.unnest(*given_arrays())
        .table_valued(*(name for name, _, _ in COLUMNS), with_ordinality="position")
        .render_derived(name="given")
    )
    return _insert(given.c, SHOWN if shown else SHOWN[:2], given.c.position)


@cache
def insert_job(*, keyed: bool, shown: bool = True) -> ReturningInsert[*tuple[Any, ...]]:
    """The same for one job: `insert_parameter()`. Without a key it looks for none, which takes a tenth off a commit."""
    schema_in_use()
    row = SimpleNamespace(**{name: value(name, item) for name, item, _ in COLUMNS})
    answer = SHOWN if shown else SHOWN[:2]
    if keyed:
        return _insert(row, answer)
    values = {**asked_for(row), jobs.c.trace_context: cast(row.trace_context, JSONB)}
    return _returning(
        insert(jobs).from_select(list(values), select(*values.values()), include_defaults=False), answer
    )


def _insert(row: Any, answer: Sequence[str], *order: ColumnElement[int]) -> ReturningInsert[Any]:
    values = {
        **asked_for(row),
        jobs.c.idempotency_key: row.idempotency_key,
        jobs.c.key_scope: row.key_scope,
        jobs.c.unique_key: row.unique_key,
        jobs.c.trace_context: cast(row.trace_context, JSONB),
    }
    held = jobs.alias("held")
    taken = select(held.c.unique_key).where(held.c.unique_key == row.unique_key).scalar_subquery()
    source = select(*values.values()).where(or_(row.unique_key.is_(None), taken.is_(None))).order_by(*order)
    return _returning(
        insert(jobs)
        .from_select(list(values), source, include_defaults=False)
        .on_conflict_do_nothing(
            index_elements=[jobs.c.unique_key], index_where=jobs.c.unique_key.is_not(None)
        ),
        answer,
    )


def _returning(statement: Insert, names: Sequence[str]) -> ReturningInsert[Any]:
    return statement.returning(*(jobs.c[name] for name in names))


def given_arrays(prefix: str = "") -> list[ColumnElement[Any]]:
    """The arrays of `insert_parameters()`, in the order of COLUMNS; `prefix` stands before the names of the parameters."""
    return [
        texts(prefix + name) if name == "payload" else array(prefix + name, item) for name, item, _ in COLUMNS
    ]


def asked_for(row: Any) -> dict[Any, ColumnElement[Any]]:
    """What a row of the arrays asks for, all but its key: column and value."""
    return {
        jobs.c.kind: row.kind,
        jobs.c.payload: cast(row.payload, JSONB),
        jobs.c.queue: func.coalesce(row.queue, word(DEFAULT_QUEUE)),
        jobs.c.payload_version: func.coalesce(row.payload_version, number(DEFAULT_PAYLOAD_VERSION)),
        jobs.c.priority: func.coalesce(row.priority, number(DEFAULT_PRIORITY)),
        jobs.c.max_attempts: func.coalesce(row.max_attempts, number(DEFAULT_MAX_ATTEMPTS)),
        jobs.c.run_at: due(row),
        jobs.c.expires_at: row.expires_at,
    }


def due(row: Any) -> ColumnElement[Any]:
    """When a row of the arrays is due; now() is the start of the caller's transaction."""
    return func.coalesce(row.run_at, func.now() + row.delay, func.now())


def insert_parameters(new_jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The arrays for `insert_jobs()`."""
    columns = {**columns_of(new_jobs)}
    if columns["bucket"].count(None) == len(new_jobs):
        columns["unique_key"] = columns["idempotency_key"]
    else:
        columns["unique_key"] = [new_job.unique_key for new_job in new_jobs]
    parameters: dict[str, Any] = {
        name: [] if columns[name].count(default) == len(new_jobs) else list(columns[name])
        for name, _, default in COLUMNS
    }
    parameters["payload"] = joined(columns["payload"])
    return parameters


def insert_parameter(new_job: NewJob) -> dict[str, Any]:
    """The values for `insert_job()`."""
    names = _FREE if new_job.idempotency_key is None else _KEYED
    return {name: getattr(new_job, name) for name in names}
