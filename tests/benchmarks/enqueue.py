"""What does enqueueing cost beside SQLAlchemy's own unit of work, and what do flushes without jobs pay for it?

The ruler is a mapped class of the application's own with the same columns, indexes and constraints, its 1,000 objects
added and flushed as SQLAlchemy does it. Objects are made, added and flushed inside the clock; the transaction is rolled
back outside of it, but for the single jobs, whose commit counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, MetaData, Text, create_engine, event, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sa_jobqueue import Job, enqueue, enqueue_many
from sa_jobqueue.entry.unit_of_work import _insert_pending_jobs, _insert_waiting_jobs, _undo_rolled_back
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks.measure import database, in_turns, median, print_table, spread

JOBS, RUNS, SINGLE_RUNS, FLUSH_RUNS = 1_000, 15, 400, 25
HOOKS = (
    ("before_flush", _insert_pending_jobs),
    ("after_flush_postexec", _insert_waiting_jobs),
    ("persistent_to_transient", _undo_rolled_back),
)


class Base(DeclarativeBase):
    metadata = MetaData()


class StockJob(Base):
    """The job table under another name, mapped as an application would."""

    __table__ = Job.__table__.to_metadata(Base.metadata, name="stock_jobs")


class Note(Base):
    """A plain object."""

    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(Text)


STOCK_CORE = insert(StockJob).returning(StockJob.id)
#: The columns that a job without a key has from the library, into the same table.
BY_HAND = """
    INSERT INTO jobqueue_jobs (kind, payload, queue, payload_version, priority, max_attempts, run_at, expires_at)
    VALUES (%s, %s::jsonb, %s, %s, %s, %s, coalesce(%s::timestamptz, now()), %s) RETURNING id
"""
DEFAULTS = ("default", 1, 5, 5, None, None)


def run(server: PostgresServer) -> None:
    """Print the three tables."""
    with database(server) as url:
        engine = create_engine(url)
        for index in StockJob.__table__.indexes:
            index.name = f"stock_{index.name}"
        Base.metadata.create_all(engine)
        _print_jobs(engine)
        _print_single_jobs(url, engine)
        _print_plain_flushes(engine)
        engine.dispose()


def _print_jobs(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.add_all(enqueue("noop", {"number": 0}, idempotency_key=f"taken:{n}") for n in range(JOBS))
    stock = "stock ORM, a key each"
    makers: dict[str, Callable[[int], object]] = {
        stock: lambda n: StockJob(
            kind="noop",
            payload={"number": n},
            idempotency_key=f"free:{n}",
            key_scope="row",
            unique_key=f"free:{n}",
        ),
        "jobs, a key each": lambda n: enqueue("noop", {"number": n}, idempotency_key=f"free:{n}"),
        "jobs without keys": lambda n: enqueue("noop", {"number": n}),
        "jobs, every key taken": lambda n: enqueue("noop", {"number": n}, idempotency_key=f"taken:{n}"),
    }
    figures = in_turns(
        {name: lambda make=make: _flush(engine, make, JOBS) for name, make in makers.items()}, runs=RUNS
    )
    ruler = median(figures[stock])
    rows = [
        (
            name,
            spread(times, ".0f"),
            f"{median(times) / ruler:.2f}",
            str(_count_inserts(engine, makers[name])),
        )
        for name, times in figures.items()
    ]
    print_table(
        f"{JOBS:,} objects in one flush, milliseconds, median of {RUNS} (range)",
        ("", "ms", "ratio", "INSERTs"),
        rows,
    )


def _print_single_jobs(url: str, engine: Engine) -> None:
    with connect(url) as raw, engine.connect() as connection:
        stock, by_hand = "stock ORM", "by hand on psycopg"
        contestants = {
            stock: lambda: _commit(engine, StockJob(kind="noop", payload={"number": 0})),
            "a job": lambda: _commit(engine, enqueue("noop", {"number": 0})),
            by_hand: lambda: _commit_by_hand(raw),
            "stock Core": lambda: _commit_stock_core(connection),
            "enqueue_many": lambda: _commit_core(connection),
        }
        figures = in_turns(contestants, runs=SINGLE_RUNS)
    rulers = {name: median(figures[name]) for name in (stock, by_hand)}
    rows = []
    for name, times in figures.items():
        ratios = [f"{ruler / median(times):.2f}" for ruler in rulers.values()]
        rows.append((name, spread(times, ".2f"), *ratios))
    print_table(
        f"One object and its commit, milliseconds, and the rate beside two rulers, median of {SINGLE_RUNS} (range)",
        ("", "ms", *rulers),
        rows,
    )


def _print_plain_flushes(engine: Engine) -> None:
    rows = []
    for objects in (1, 10_000):
        contestants = {"without the hook": _without_hooks, "with it": _with_hooks}
        figures = in_turns(
            {
                name: lambda hooks=hooks, objects=objects: _plain_flush(engine, hooks, objects)
                for name, hooks in contestants.items()
            },
            runs=FLUSH_RUNS,
        )
        without, with_hook = (median(figures[name]) for name in contestants)
        rows.append((f"{objects:,}", f"{without:.3f}", f"{with_hook:.3f}", f"{with_hook / without:.3f}"))
    print_table(
        f"Flush of plain objects, milliseconds, median of {FLUSH_RUNS}",
        ("objects", "without the hook", "with it", "ratio"),
        rows,
    )


def _flush(engine: Engine, make: Callable[[int], object], count: int) -> float:
    """Milliseconds to make, add and flush."""
    with Session(engine) as session:
        session.connection()
        began = time.perf_counter()
        session.add_all(make(n) for n in range(count))
        session.flush()
        return (time.perf_counter() - began) * 1e3


def _commit(engine: Engine, obj: object) -> float:
    """Milliseconds to store one object for good."""
    began = time.perf_counter()
    with Session(engine) as session:
        session.add(obj)
        session.commit()
    return (time.perf_counter() - began) * 1e3


def _commit_by_hand(connection: psycopg.Connection[Any]) -> float:
    """The same without SQLAlchemy: BEGIN, INSERT, COMMIT. The driver prepares the INSERT by itself."""
    began = time.perf_counter()
    with connection.transaction():
        connection.execute(BY_HAND, ["noop", json.dumps({"number": 0}), *DEFAULTS]).fetchone()
    return (time.perf_counter() - began) * 1e3


def _commit_stock_core(connection: Connection) -> float:
    """SQLAlchemy's own share: an INSERT of two columns."""
    began = time.perf_counter()
    connection.execute(STOCK_CORE, {"kind": "noop", "payload": {"number": 0}}).scalar_one()
    connection.commit()
    return (time.perf_counter() - began) * 1e3


def _commit_core(connection: Connection) -> float:
    """Milliseconds on a connection that is there."""
    began = time.perf_counter()
    enqueue_many(connection, [enqueue("noop", {"number": 0})])
    connection.commit()
    return (time.perf_counter() - began) * 1e3


def _plain_flush(engine: Engine, hooks: Callable[[], Any], count: int) -> float:
    # A flush of one object is short: repeat it, so that the clock has something to measure.
    repeat = max(1, 200 // count)
    with hooks():
        return sum(_flush(engine, lambda n: Note(body=f"note {n}"), count) for _ in range(repeat)) / repeat


@contextmanager
def _with_hooks() -> Iterator[None]:
    yield


@contextmanager
def _without_hooks() -> Iterator[None]:
    """Sessions as they are in a process that never imported the queue."""
    for name, hook in HOOKS:
        event.remove(Session, name, hook)
    try:
        yield
    finally:
        for name, hook in HOOKS:
            event.listen(Session, name, hook)


def _count_inserts(engine: Engine, make: Callable[[int], object]) -> int:
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    try:
        _flush(engine, make, JOBS)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return sum(statement.startswith("INSERT") for statement in statements)
