"""The duties on a real table: what they do, what they tell, and that nothing can hide from them or make them spin."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, func, insert, select

from sa_jobqueue.events import Event, JobRescued, Subscribers, UnservedQueues
from sa_jobqueue.maintenance.acts import RESCUE_LIMIT, Maintenance
from sa_jobqueue.maintenance.duties import Do, Done
from sa_jobqueue.models import jobs
from sa_jobqueue.registry import Registry
from sa_jobqueue.retention import Retention
from sa_jobqueue.store.store import Store
from tests.support.jobs import add_job, add_running, read_job, refuse

HOUR = timedelta(hours=1)
NONE = timedelta(0)


@pytest.fixture
def heard() -> list[Event]:
    """All events so far."""
    return []


@pytest.fixture
def maintenance(store: Store, heard: list[Event]) -> Maintenance:
    """The duties of a runner that serves the queue `served` and handles the kind `test`."""
    registry = Registry()
    registry.handler("test")(lambda: None)
    return Maintenance(
        store,
        registry=registry,
        queues={"served": 1},
        lease=NONE,
        margin=NONE,
        retention=Retention(),
        runner_id="runner-1",
        subscribers=Subscribers([heard.append]),
    )


def _add_lost(engine: Engine, token: UUID, count: int) -> None:
    """Jobs whose lease ran out one after the other."""
    with engine.begin() as connection:
        connection.execute(
            insert(jobs).values(
                kind="test",
                status="running",
                attempts=1,
                lease_token=token,
                lease_until=func.now() - HOUR,
                leased_by="lost",
            ),
            [{} for _ in range(count)],
        )


def _sweep(maintenance: Maintenance) -> int:
    """Rescue until nothing more is promised; how often that was."""
    for passes in range(1, 20):
        if maintenance.perform(Do("rescue")) == Done("rescue", more=False):
            return passes
    raise AssertionError("the rescue goes on without end")


def _rescued(heard: list[Event]) -> set[int]:
    return {event.job_id for event in heard if isinstance(event, JobRescued)}


def test_locked_jobs_hide_nobody_and_make_nobody_spin(
    engine: Engine, maintenance: Maintenance, heard: list[Event], token: UUID
) -> None:
    """More locked rows than a batch holds stand in front: one sweep takes what is behind them, and then it rests."""
    _add_lost(engine, token, 2 * RESCUE_LIMIT + 20)
    with engine.begin() as application:
        locked = set(
            application.execute(
                select(jobs.c.id).order_by(jobs.c.id).limit(RESCUE_LIMIT + 5).with_for_update()
            ).scalars()
        )
        assert _sweep(maintenance) == 3
        free = _rescued(heard)
        assert len(free) == RESCUE_LIMIT + 15
        assert not free & locked
        assert _sweep(maintenance) == 2
        assert _rescued(heard) == free
    _sweep(maintenance)
    assert _rescued(heard) == free | locked


def test_a_refused_rescue_is_passed_over(
    engine: Engine, maintenance: Maintenance, heard: list[Event], token: UUID
) -> None:
    """A row that somebody's trigger protects costs each sweep one try, and the others nothing."""
    ids = [add_running(engine, token, lease=-HOUR) for _ in range(3)]
    refuse(engine, ids[0], "RAISE 'no'")
    assert _sweep(maintenance) == 1
    assert _rescued(heard) == set(ids[1:])
    assert read_job(engine, ids[0]).status == "running"


def test_jobs_in_queues_that_nobody_here_serves_are_told(
    engine: Engine, maintenance: Maintenance, heard: list[Event]
) -> None:
    """A job enqueued by name lands in `default`: a runner that could run it says so, once for every change."""
    look = Do("unserved queues")
    for queue, columns in (
        ("served", {}),
        ("future", {"run_at": func.now() + HOUR}),
        ("foreign", {"kind": "another"}),
        ("done", {"status": "done", "finished_at": func.now()}),
    ):
        add_job(engine, queue=queue, **columns)
    maintenance.perform(look)
    assert heard == []
    for queue in ("default", "default", "Straße", ""):
        add_job(engine, queue=queue)
    assert maintenance.perform(look) == Done("unserved queues", more=False)
    maintenance.perform(look)
    told = UnservedQueues(
        runner_id="runner-1", queues={"": {"test": 1}, "default": {"test": 2}, "Straße": {"test": 1}}
    )
    assert heard == [told]
    with engine.begin() as connection:
        connection.execute(jobs.delete().where(jobs.c.queue.not_in(["served"])))
    maintenance.perform(look)
    add_job(engine)
    maintenance.perform(look)
    assert heard[1:] == [UnservedQueues(runner_id="runner-1", queues={"default": {"test": 1}})]


def test_the_look_for_unserved_queues_is_bounded(engine: Engine, store: Store) -> None:
    """Of a long queue so many due jobs are counted and no more, over all priorities together."""
    with engine.begin() as connection:
        connection.execute(insert(jobs), [{"kind": "test", "priority": number % 10} for number in range(50)])
    assert store.unserved(queues=[], kinds=["test"], limit=7) == {"default": {"test": 7}}
    assert store.unknown_kinds(queues=["default"], kinds=[], limit=7) == {"default": {"test": 7}}


def test_every_duty_is_known(store: Store, maintenance: Maintenance) -> None:
    """What is due is also done: no duty's name is misspelt."""
    for duty in maintenance.duties(rescue_interval=HOUR, prune_interval=HOUR):
        assert maintenance.perform(Do(duty.name)) == Done(duty.name, more=False)
