"""Postponing: due jobs of kinds that nobody here knows are moved out of the way, and nothing else of them changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, func, insert, select, text, update

from sa_jobqueue.events import Event, Subscribers, UnknownKinds, UnknownKindsPostponed
from sa_jobqueue.maintenance import unknown
from sa_jobqueue.maintenance.unknown import UnknownJobs
from sa_jobqueue.models import jobs
from sa_jobqueue.registry import Registry
from sa_jobqueue.store.store import Store
from tests.support.jobs import add_job, add_running, change, read_job, refuse
from tests.support.waiting import PATIENCE

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
KEPT, BATCH = 4, 3


def postpone(store: Store, ids: list[int]) -> list[int]:
    return list(store.postpone(ids, shortest=MINUTE, longest=HOUR))


def delay(engine: Engine, job_id: int) -> timedelta:
    """What the last write gave this job."""
    row = read_job(engine, job_id)
    given: timedelta = row.run_at - row.updated_at
    return given


def test_a_postponed_job_is_due_later(engine: Engine, store: Store) -> None:
    """A minute at first, by the database's clock; nothing but the due time changes, attempts least of all."""
    job_id = add_job(engine, attempts=3, returned=1, idempotency_key="a", key_scope="row", unique_key="a")
    before = read_job(engine, job_id)
    told = store.postpone([job_id], shortest=MINUTE, longest=HOUR)
    after = read_job(engine, job_id)
    assert told == {job_id: after.run_at}
    assert after.run_at == after.updated_at + MINUTE + timedelta(microseconds=1)
    assert after.updated_at > before.updated_at
    changed = {name for name in before._fields if getattr(before, name) != getattr(after, name)}
    assert changed == {"run_at", "updated_at"}


@pytest.mark.parametrize(
    ("given", "then"),
    [
        (timedelta(0), MINUTE),
        (timedelta(seconds=10), MINUTE),
        (MINUTE, 2 * MINUTE),
        (29 * MINUTE, 58 * MINUTE),
        (31 * MINUTE, HOUR),
        (timedelta(days=7), HOUR),
    ],
)
def test_the_delay_doubles_up_to_an_hour(
    engine: Engine, store: Store, given: timedelta, then: timedelta
) -> None:
    """The row remembers what it was given last, so that a job which nobody comes for is touched ever more rarely."""
    due = func.now() - MINUTE
    job_id = add_job(engine, run_at=due, updated_at=due - given, created_at=func.now() - timedelta(days=30))
    assert postpone(store, [job_id]) == [job_id]
    assert delay(engine, job_id) == then + timedelta(microseconds=1)


@pytest.mark.parametrize("odd", ["-infinity", "0044-03-15 BC"])
def test_odd_times_spoil_no_batch(engine: Engine, store: Store, odd: str) -> None:
    """Other SQL may write times that can't be subtracted, or that Python can't hold."""
    ids = [add_job(engine) for _ in range(2)]
    with engine.begin() as connection:
        query = "UPDATE jobqueue_jobs SET run_at = cast(:odd AS timestamptz), updated_at = 'infinity' WHERE id = :id"
        connection.execute(text(query), {"odd": odd, "id": ids[0]})
    assert postpone(store, ids) == ids
    assert MINUTE <= delay(engine, ids[0]) <= HOUR + MINUTE


def test_jobs_come_back_in_their_order(engine: Engine, store: Store) -> None:
    """Those of one batch that waited alike keep their order, which need not be that of their ids."""
    ids = [add_job(engine) for _ in range(5)][::-1]
    assert postpone(store, ids) == ids
    with engine.connect() as connection:
        assert list(connection.execute(select(jobs.c.id).order_by(jobs.c.run_at)).scalars()) == ids


def test_only_due_jobs_are_postponed(engine: Engine, store: Store, token: UUID) -> None:
    """What a runner has taken meanwhile, what is finished and what is not due yet stays as it is."""
    others = [
        add_running(engine, token),
        add_job(engine, status="done", finished_at=func.now()),
        add_job(engine, run_at=func.now() + MINUTE),
    ]
    before = [read_job(engine, job_id) for job_id in others]
    due = add_job(engine)
    assert postpone(store, [*others, due, 10**9]) == [due]
    assert [read_job(engine, job_id) for job_id in others] == before
    assert postpone(store, [due]) == []


def test_locked_jobs_are_left_out(engine: Engine, store: Store) -> None:
    """Nothing waits for an application's lock on a row; a foreign key on a job is no such lock."""
    locked, referenced, free = (add_job(engine) for _ in range(3))
    with engine.begin() as application:
        application.execute(select(jobs.c.id).where(jobs.c.id == locked).with_for_update())
        application.execute(
            select(jobs.c.id).where(jobs.c.id == referenced).with_for_update(key_share=True, read=True)
        )
        assert postpone(store, [locked, referenced, free]) == [referenced, free]


def test_a_refused_row_holds_back_no_other(engine: Engine, store: Store) -> None:
    """A row that somebody's trigger protects stays where it is, and the rest of its batch goes."""
    ids = [add_job(engine) for _ in range(5)]
    refuse(engine, ids[2], "RAISE 'no'")
    assert postpone(store, ids) == [*ids[:2], *ids[3:]]
    assert delay(engine, ids[2]) == timedelta(0)


def test_two_runners_move_a_job_once(engine: Engine, store: Store, other: Store) -> None:
    """While one runner's batch is not committed another leaves these rows out at once; afterwards they are not due."""
    ids = [add_job(engine) for _ in range(3)]
    with engine.begin() as first:
        first.execute(update(jobs).where(jobs.c.id == ids[0]).values(run_at=func.now() + MINUTE))
        with ThreadPoolExecutor(1) as pool:
            moved = pool.submit(postpone, other, ids).result(timeout=PATIENCE)
        assert moved == ids[1:]
    assert postpone(store, ids) == []


def test_waiting_jobs_are_listed_in_claim_order(engine: Engine, store: Store, token: UUID) -> None:
    """By priority, due time and id, the first ones passed; other queues, kinds and the future are not there."""
    last = add_job(engine, priority=9, run_at=func.now() - HOUR)
    second = add_job(engine, run_at=func.now() - MINUTE)
    third = add_job(engine, kind="b", run_at=func.now() - MINUTE)
    first = add_job(engine, run_at=func.now() - HOUR)
    for columns in ({"queue": "q"}, {"kind": "c"}, {"run_at": func.now() + HOUR}):
        add_job(engine, **columns)
    add_running(engine, token, kind="d")
    listed = store.waiting(queue="default", kinds=["test", "b"], passed=0, limit=10)
    assert listed == [(first, "test"), (second, "test"), (third, "b"), (last, "test")]
    assert store.waiting(queue="default", kinds=["test", "b"], passed=1, limit=2) == listed[1:3]


def test_kinds_in_work_are_not_waiting(engine: Engine, store: Store, token: UUID) -> None:
    """A kind that runs somewhere, in whatever queue, has somebody who is there for it; a past lease proves nothing."""
    busy, lost = add_job(engine, kind="busy"), add_job(engine, kind="lost")
    running = add_running(engine, token, kind="busy", queue="elsewhere")
    add_running(engine, token, kind="lost", lease=-MINUTE)
    kinds = ["busy", "lost"]
    assert store.waiting(queue="default", kinds=kinds, passed=0, limit=9) == [(lost, "lost")]
    change(engine, running, lease_until=func.now() - MINUTE)
    assert store.waiting(queue="default", kinds=kinds, passed=0, limit=9) == [(busy, "busy"), (lost, "lost")]


@pytest.fixture
def heard() -> list[Event]:
    """All events so far."""
    return []


@pytest.fixture
def duty(store: Store, heard: list[Event], monkeypatch: pytest.MonkeyPatch) -> UnknownJobs:
    """The duty of a runner that knows the kind `known`, with small numbers."""
    monkeypatch.setattr(unknown, "KEPT", KEPT)
    monkeypatch.setattr(unknown, "LOOK_LIMIT", 2 * KEPT)
    monkeypatch.setattr(unknown, "BATCH", BATCH)
    registry = Registry()
    registry.handler("known")(lambda: None)
    return UnknownJobs(
        store,
        registry=registry,
        queues=["default", "other"],
        runner_id="runner-1",
        subscribers=Subscribers([heard.append]),
    )


def flood(engine: Engine, count: int, **columns: Any) -> list[int]:
    return [add_job(engine, **{"kind": "strange", **columns}) for _ in range(count)]


def untouched(engine: Engine) -> set[int]:
    with engine.connect() as connection:
        query = select(jobs.c.id).where(jobs.c.run_at <= func.statement_timestamp())
        return set(connection.execute(query).scalars())


def test_a_crowd_is_moved_behind_the_first_ones(
    engine: Engine, duty: UnknownJobs, heard: list[Event]
) -> None:
    """At the second look, batch by batch without a pause, and told once: who comes later still finds the first ones."""
    ids = flood(engine, KEPT + 2 * BATCH + 1)
    future = add_job(engine, kind="strange", run_at=func.now() + HOUR)
    known = add_job(engine, kind="known")
    elsewhere = flood(engine, 2 * KEPT, queue="unserved")
    before = read_job(engine, future)
    assert not duty.look()
    assert untouched(engine) == {*ids, known, *elsewhere}
    assert [duty.look(), duty.look(), duty.look()] == [True, True, False]
    assert untouched(engine) == {*ids[:KEPT], known, *elsewhere}
    assert read_job(engine, future) == before
    told = [event for event in heard if isinstance(event, UnknownKindsPostponed)]
    assert told == [
        UnknownKindsPostponed(
            runner_id="runner-1",
            queues={"default": {"strange": 2 * BATCH + 1}},
            until=max(read_job(engine, job_id).run_at for job_id in ids),
        )
    ]
    assert [type(event) for event in heard] == [UnknownKinds, UnknownKindsPostponed]
    assert not duty.look()
    assert len(heard) == 2


def test_a_few_are_left_alone(engine: Engine, duty: UnknownJobs, heard: list[Event]) -> None:
    """What does not burden claims stays where it is, in each queue by itself; known jobs don't count."""
    ids = [*flood(engine, KEPT), *flood(engine, KEPT, queue="other"), *flood(engine, KEPT, kind="known")]
    assert not any(duty.look() for _ in range(3))
    assert untouched(engine) == set(ids)
    assert [type(event) for event in heard] == [UnknownKinds]


def test_kinds_that_somebody_works_on_are_left_alone(
    engine: Engine, duty: UnknownJobs, heard: list[Event], token: UUID
) -> None:
    """Another runner's backlog is not in anybody's way: none of its kind is moved while one of them runs."""
    busy = flood(engine, KEPT + BATCH, kind="busy")
    strange = flood(engine, KEPT + BATCH)
    running = add_running(engine, token, kind="busy")
    assert [duty.look() for _ in range(3)] == [False, True, False]
    assert untouched(engine) == {*busy, *strange[:KEPT], running}
    change(engine, running, lease_until=func.now() - MINUTE)
    # Idle for the first time: it may be between two jobs.
    assert not duty.look()
    assert set(busy) <= untouched(engine)
    change(engine, running, lease_until=func.now() + MINUTE)
    assert not duty.look()
    change(engine, running, lease_until=func.now() - MINUTE)
    assert not duty.look()
    assert set(busy) <= untouched(engine)
    duty.look()
    assert not set(busy) <= untouched(engine)


def test_a_sweep_ends_when_everything_is_locked(
    engine: Engine, duty: UnknownJobs, heard: list[Event]
) -> None:
    """A transaction of the application's that holds all of them makes nobody spin."""
    ids = flood(engine, KEPT + 2 * BATCH)
    with engine.begin() as application:
        application.execute(select(jobs.c.id).with_for_update())
        assert [duty.look() for _ in range(3)] == [False] * 3
    assert duty.look()
    assert untouched(engine) <= set(ids)


def test_two_runners_share_the_work(engine: Engine, duty: UnknownJobs, other: Store) -> None:
    """Two that sweep at the same time get in nobody's way, and no job is moved twice."""
    registry = Registry()
    registry.handler("else")(lambda: None)
    second = UnknownJobs(
        other, registry=registry, queues=["default"], runner_id="runner-2", subscribers=Subscribers()
    )
    with engine.begin() as connection:
        connection.execute(insert(jobs), [{"kind": "strange"} for _ in range(300)])
    duties = (duty, second)
    for each in duties:
        each.look()

    def sweep(each: UnknownJobs) -> None:
        assert not all(each.look() for _ in range(300))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(sweep, duties))
    sweep(duty)
    with engine.connect() as connection:
        delays = func.date_trunc("minute", jobs.c.run_at - jobs.c.updated_at)
        counts = dict(map(tuple, connection.execute(select(delays, func.count()).group_by(delays)).all()))
    assert counts == {timedelta(0): KEPT, MINUTE: 300 - KEPT}
