"""What a person does to jobs, from code: in the caller's transaction, over every driver, on sessions and connections."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sa_jobqueue import Job, JobStatus, enqueue, enqueue_many
from sa_jobqueue.admin import (
    cancel,
    count_prunable,
    get_job,
    list_jobs,
    prune,
    redrive,
    reschedule,
    stats,
)
from tests.contract.cells import DRIVERS, Cell
from tests.contract.conftest import Place
from tests.contract.unit import settled

CELLS = [
    Cell("enqueue_many", kind, driver)
    for kind in ("sessionmaker", "scoped", "connection")
    for driver in DRIVERS
]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_verbs_and_readings(cell: Cell, commit: bool, place: Place) -> None:
    """Each sees what the ones before have done, and all of it stands and falls with the transaction."""
    holder = place.hold("x")

    async def work() -> None:
        unit = await cell.open(place.engines[cell.driver])
        try:
            on = unit.target
            made = await settled(enqueue_many(on, [enqueue("k", {"n": n}) for n in range(3)]))
            ids = [one.id for one in made]
            assert [one.status for one in await settled(cancel(on, [holder, *ids[:2]]))] == ["cancelled"] * 3
            assert [one.status for one in await settled(redrive(on, [ids[0]]))] == ["ready"]
            moved = await settled(reschedule(on, [ids[0], ids[1]], delay=timedelta(hours=1), priority=0))
            assert [one.landed for one in moved] == [True, False]
            page = await settled(list_jobs(on, statuses=["ready"], queues=["default"]))
            assert [job.id for job in page.jobs] == [ids[2], ids[0]]
            details = await settled(get_job(on, ids[0]))
            assert (details.payload, details.priority) == ({"n": 0}, 0)
            (queue,) = (await settled(stats(on, exact=True))).queues
            assert (queue.due, queue.delayed, queue.cancelled) == (1, 1, 2)
            gone = {"status": JobStatus.CANCELLED, "older_than": timedelta(0)}
            assert await settled(count_prunable(on, **gone)) == 2
            assert (await settled(prune(on, **gone))).count == 2
            assert place.jobs() == [(holder, "holder", {})]
            await (unit.commit() if commit else unit.rollback())
            assert place.kinds() == (["k", "k"] if commit else ["holder"])
        finally:
            await unit.close()

    place.run(work())


def test_a_job_that_a_verb_has_changed_is_read_anew(place: Place) -> None:
    """Objects of the session are expired, with every driver."""

    async def work() -> None:
        for driver in DRIVERS:
            unit = await Cell("add", "sessionmaker", driver).open(place.engines[driver])
            job: Job = enqueue("k")
            await unit.put(job)
            await unit.flush()
            assert job.enqueued
            await settled(cancel(unit.target, [job.enqueued.id]))
            await settled(unit.target.refresh(job))
            assert job.status == "cancelled"
            await unit.close()

    place.run(work())
