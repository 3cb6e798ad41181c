"""A key that another transaction is about to take: nobody loses a job, nobody makes two, whatever becomes of the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import Enqueued, enqueue
from sa_jobqueue.store.trouble import sqlstate_of
from sa_jobqueue.testing.server import connect
from tests.contract.cells import Cell
from tests.contract.conftest import Place
from tests.contract.unit import Unit, settled
from tests.support.waiting import PATIENCE, wait_until

CELLS = [
    Cell(way, kind, driver)
    for way, kind in (
        ("add", "sessionmaker"),
        ("foreign key", "sessionmaker"),
        ("enqueue_many", "connection"),
    )
    for driver in ("psycopg", "psycopg2", "psycopg async", "asyncpg")
]
in_every_cell = pytest.mark.parametrize("cell", CELLS, ids=str)
STRICT = ["REPEATABLE READ", "SERIALIZABLE"]
_INSERT = (
    "INSERT INTO jobqueue_jobs (kind, idempotency_key, key_scope, unique_key) "
    "VALUES ('first', 'x', 'row', 'x') RETURNING id"
)


class First:
    """A transaction that has inserted the key; it ends when somebody waits for it."""

    def __init__(self, connection: psycopg.Connection[Any], observer_url: str) -> None:
        self._connection = connection
        self._url = observer_url
        row = connection.execute(_INSERT).fetchone()
        assert row
        self.id = int(row[0])

    def end(self, *, commit: bool) -> None:
        with connect(self._url) as observer:
            mine = self._connection.info.backend_pid
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            wait_until(
                lambda: (observer.execute(waiting, [mine]).fetchone() or (0,))[0], what="somebody who waits"
            )
        (self._connection.commit if commit else self._connection.rollback)()


@contextmanager
def first(place: Place, *, commit: bool) -> Iterator[First]:
    """It ends in a thread of its own within the block."""
    with psycopg.connect(place.dsn) as connection:
        transaction = First(connection, place.url)
        thread = threading.Thread(target=transaction.end, kwargs={"commit": commit})
        thread.start()
        try:
            yield transaction
        finally:
            thread.join(PATIENCE)


async def begun(cell: Cell, place: Place, isolation: str | None) -> Unit:
    """A unit whose transaction has its snapshot."""
    unit = await cell.open(place.engines[cell.driver])
    if isolation:
        if unit.is_session:
            await settled(unit.target.connection(execution_options={"isolation_level": isolation}))
        else:
            await settled(unit.target.execution_options(isolation_level=isolation))
    await settled(unit.target.execute(text("SELECT count(*) FROM documents")))
    return unit


@in_every_cell
@pytest.mark.parametrize("isolation", [None, *STRICT])
def test_the_first_rolls_back(cell: Cell, isolation: str | None, place: Place) -> None:
    """A job of a transaction that came to nothing is no duplicate, at any isolation level."""

    async def work() -> None:
        unit = await begun(cell, place, isolation)
        try:
            with first(place, commit=False):
                (job,) = await cell.enter(unit, enqueue("second", idempotency_key="x"))
            assert job.enqueued
            assert job.enqueued.created
            await unit.store_document("second")
            await unit.commit()
            assert place.jobs() == [(job.enqueued.id, "second", {})]
        finally:
            await unit.close()

    place.run(work())
    assert place.titles() == ["second"]


@in_every_cell
def test_the_first_commits(cell: Cell, place: Place) -> None:
    """At READ COMMITTED the second is told by which job the key is held, and its own work commits."""

    async def work() -> None:
        unit = await begun(cell, place, None)
        try:
            with first(place, commit=True) as winner:
                (job,) = await cell.enter(unit, enqueue("second", idempotency_key="x"))
            assert job.enqueued == Enqueued(winner.id, "existing")
            await unit.store_document("second")
            await unit.commit()
        finally:
            await unit.close()

    place.run(work())
    assert (place.kinds(), place.titles()) == (["first"], ["second"])


@in_every_cell
@pytest.mark.parametrize("isolation", STRICT)
def test_the_first_commits_after_a_snapshot(cell: Cell, isolation: str, place: Place) -> None:
    """The second gets SQLSTATE 40001, as README says, and is told of the holder when it runs its transaction again."""

    async def work() -> None:
        unit = await begun(cell, place, isolation)
        try:
            new = enqueue("second", idempotency_key="x")
            with first(place, commit=True) as winner, pytest.raises(DBAPIError) as caught:
                await cell.enter(unit, new)
            assert sqlstate_of(caught.value) == "40001"
            await unit.rollback()
            (job,) = await cell.enter(unit, new)
            await unit.store_document("second")
            await unit.commit()
            assert job.enqueued == Enqueued(winner.id, "existing")
        finally:
            await unit.close()

    place.run(work())
    assert (place.kinds(), place.titles()) == (["first"], ["second"])


@in_every_cell
@pytest.mark.parametrize("isolation", STRICT)
def test_a_key_that_was_committed_after_the_snapshot(cell: Cell, isolation: str, place: Place) -> None:
    """Nobody waits there, and the answer is the same: the holder can't be seen, so it can't be told."""

    async def work() -> None:
        unit = await begun(cell, place, isolation)
        try:
            holder = place.hold("x")
            with pytest.raises(DBAPIError) as caught:
                await cell.enter(unit, enqueue("second", idempotency_key="x"))
            assert sqlstate_of(caught.value) == "40001"
            await unit.rollback()
            (job,) = await cell.enter(unit, enqueue("second", idempotency_key="x"))
            assert job.enqueued == Enqueued(holder, "existing")
        finally:
            await unit.close()

    place.run(work())
    assert place.kinds() == ["holder"]
