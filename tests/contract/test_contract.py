"""What holds for a job whichever way it comes in: each test is one clause, and each runs in every cell of the table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm.exc import DetachedInstanceError

from sa_jobqueue import Enqueued, Job, enqueue
from tests.contract.cells import CELLS, DRIVERS, TABLE, WAYS, Cell
from tests.contract.conftest import Place
from tests.contract.unit import Unit, settled

#: What a driver might take for markers of its own, what JSON knows, and text that needs quotes.
PAYLOAD = {
    "a": [1, None, True, 1.5, {"b": []}],
    "text": "%s %(x)s :x $1 {} ' \" \\ \u00e9 \U0001f600",
    "": "",
}
in_every_cell = pytest.mark.parametrize("cell", CELLS, ids=str)


@asynccontextmanager
async def opened(place: Place, cell: Cell, **options: Any) -> AsyncIterator[Unit]:
    unit = await cell.open(place.engines[cell.driver], **options)
    try:
        yield unit
    finally:
        await unit.close()


@contextmanager
def transaction_ends() -> Iterator[list[str]]:
    """What any engine is asked for meanwhile that belongs to the caller alone."""
    seen: list[str] = []
    names = ("commit", "rollback", "savepoint", "rollback_savepoint", "release_savepoint", "prepare_twophase")
    listeners = [(name, lambda *_, name=name: seen.append(name)) for name in names]
    for name, listener in listeners:
        event.listen(Engine, name, listener)
    try:
        yield seen
    finally:
        for name, listener in listeners:
            event.remove(Engine, name, listener)


def told(job: Job) -> Enqueued:
    """Without SQL: a session that is closed, or under asyncio, could send none."""
    assert job.enqueued
    return job.enqueued


@in_every_cell
@pytest.mark.parametrize("expire", [True, False], ids=["expiring", "keeping"])
def test_a_job_is_there_when_the_transaction_commits(cell: Cell, expire: bool, place: Place) -> None:
    """Seen by nobody before, by everybody after; the object tells its id and outcome from the flush to the very end."""

    async def work() -> None:
        async with opened(place, cell, expire_on_commit=expire) as unit:
            await unit.store_document("mine")
            with transaction_ends() as ends:
                (job,) = await cell.enter(unit, enqueue("k", PAYLOAD, idempotency_key="x"))
            assert ends == []
            enqueued = told(job)
            assert enqueued.created
            assert place.kinds() == place.titles() == []
            await unit.commit()
            assert place.jobs() == [(enqueued.id, "k", PAYLOAD)]
            assert told(job) == enqueued
            if expire:
                await unit.expire()
            assert told(job) == enqueued
        assert told(job) == enqueued
        assert place.titles() == ["mine"]
        if cell.way == "enqueue_many":
            assert job.id is None  # the object never was in the session
        elif expire:
            with pytest.raises(DetachedInstanceError):
                _ = job.id
        else:
            assert job.id == enqueued.id

    place.run(work())


@in_every_cell
def test_a_rollback_leaves_nothing(cell: Cell, place: Place) -> None:
    """The object can come in again, in the same session, and has another row then."""

    async def work() -> None:
        async with opened(place, cell) as unit:
            new = enqueue("k", PAYLOAD, idempotency_key="x")
            await unit.store_document("undone")
            (job,) = await cell.enter(unit, new)
            first = told(job)
            await unit.rollback()
            assert place.kinds() == []
            if cell.way != "enqueue_many":  # whose objects belong to no session that could tell them
                assert (job.enqueued, job.id, job.payload) == (None, None, PAYLOAD)
            (job,) = await cell.enter(unit, new)
            assert told(job).created
            assert told(job).id != first.id
            await unit.commit()
        assert place.jobs() == [(told(job).id, "k", PAYLOAD)]
        assert place.titles() == []

    place.run(work())


@in_every_cell
def test_closing_is_no_commit(cell: Cell, place: Place) -> None:
    """As with a request that breaks off."""

    async def work() -> None:
        async with opened(place, cell) as unit:
            await unit.store_document("undone")
            (job,) = await cell.enter(unit, enqueue("k"))
            assert told(job).created

    place.run(work())
    assert place.kinds() == place.titles() == []


@in_every_cell
def test_a_taken_key_names_its_holder_and_the_transaction_goes_on(cell: Cell, place: Place) -> None:
    """Among other jobs of the same flush; the caller's own rows, from before and after, are committed."""
    holder = place.hold("x")

    async def work() -> None:
        async with opened(place, cell) as unit:
            await unit.store_document("before")
            new = (enqueue("k", idempotency_key="x"), enqueue("free", PAYLOAD, idempotency_key="y"))
            with transaction_ends() as ends:
                taken, free = await cell.enter(unit, *new)
            assert ends == []
            assert told(taken) == Enqueued(holder, "existing")
            assert told(free).created
            await unit.store_document("then")
            await unit.commit()
            assert told(taken) == Enqueued(holder, "existing")
        assert told(taken).status == "ready"
        assert place.jobs() == [(told(free).id, "free", PAYLOAD), (holder, "holder", {})]

    place.run(work())
    assert place.titles() == ["before", "then"]


@in_every_cell
def test_a_savepoint_takes_its_own_jobs_along(cell: Cell, place: Place) -> None:
    """And no others: those of the savepoints around it stay, and the undone one can come in again."""

    async def work() -> None:
        async with opened(place, cell) as unit:
            undone = enqueue("undone", PAYLOAD, idempotency_key="x")
            (kept,) = await cell.enter(unit, enqueue("kept"))
            outer = await unit.nested()
            (released,) = await cell.enter(unit, enqueue("released"))
            inner = await unit.nested()
            await cell.enter(unit, undone, enqueue("lost"))
            await settled(inner.rollback())
            await settled(outer.commit())
            assert [told(job).created for job in (kept, released)] == [True, True]
            (again,) = await cell.enter(unit, undone)
            assert told(again).created
            await unit.commit()
        assert place.kinds() == ["kept", "released", "undone"]
        assert [payload for _, kind, payload in place.jobs() if kind == "undone"] == [PAYLOAD]
        assert {told(job).id for job in (kept, released, again)} == {id_ for id_, *_ in place.jobs()}

    place.run(work())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_what_the_outer_transaction_rolls_back_was_never_there(way: str, driver: str, place: Place) -> None:
    """The fixture of a test suite: the code under test commits, and nothing of it is left."""
    cell = Cell(way, "outer transaction", driver)

    async def work() -> None:
        async with opened(place, cell) as unit:
            (job,) = await cell.enter(unit, enqueue("k", idempotency_key="x"))
            await settled(unit.target.commit())
            assert told(job).created
            (again,) = await cell.enter(unit, enqueue("k", idempotency_key="x"))
            await settled(unit.target.commit())
            assert told(again) == Enqueued(told(job).id, "existing")
        assert place.kinds() == []

    place.run(work())


def test_the_table_is_whole() -> None:
    """A way, a session or a driver that is added has to be tried everywhere, or to say why not."""
    assert len(TABLE) == 6 * 10 * 4
    assert len(CELLS) == 6 * (7 * 4 + 2) + 2 * 4 + 1 * 4
    assert all(cell.impossible for cell in TABLE if cell not in CELLS)
