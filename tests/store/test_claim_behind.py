"""Claims that begin behind marks: what they leave out, what they find, and what a second runner sees."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.records import PRIORITIES, SMALLEST_ID, Mark, Marks
from sa_jobqueue.statements.claim import claim
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, read_job, refuse, server_time

HOUR = timedelta(hours=1)


def marks(*, default: Mark | None = None, **priorities: Mark | None) -> Marks:
    """For each priority the same, but for those that are named: p3, p4."""
    return [priorities.get(f"p{priority}", default) for priority in range(PRIORITIES)]


def place(engine: Engine, job_id: int) -> Mark:
    return Mark(read_job(engine, job_id).run_at, job_id)


def behind(store: Store, given: Mapping[str, Marks], quotas: Mapping[str, int]) -> tuple[list[int], bool]:
    """The ids that are claimed, and whether that was all."""
    answer = store.claim_behind(given, token=uuid4(), quotas=quotas, kinds=["test"], lease=MINUTE)
    return [job.id for job in answer.jobs], answer.through


def test_a_claim_begins_right_behind_the_mark(engine: Engine, store: Store) -> None:
    """By due time, then id: thousands that were enqueued at once have one due time."""
    then = server_time(engine) - HOUR
    before = add_job(engine, run_at=then - MINUTE)
    ids = [add_job(engine, run_at=then) for _ in range(4)]
    after = add_job(engine, run_at=then + MINUTE)
    given = {"default": marks(p5=place(engine, ids[1]))}
    assert behind(store, given, {"default": 9}) == ([ids[2], ids[3], after], True)
    assert behind(store, given, {"default": 9}) == ([], True)
    assert behind(store, {}, {"default": 9}) == ([before, *ids[:2]], True)


def test_each_queue_and_priority_has_a_mark_of_its_own(engine: Engine, store: Store) -> None:
    """Where there is none a look begins with the first job; the order of the claim stays what it is."""
    then = server_time(engine) - HOUR
    jobs = {
        (queue, priority): [add_job(engine, queue=queue, priority=priority, run_at=then) for _ in range(2)]
        for queue in ("a", "b", "c")
        for priority in (0, 5, 9)
    }
    given = {
        "a": marks(p0=place(engine, jobs["a", 0][0]), p9=Mark(then + MINUTE, SMALLEST_ID)),
        "c": marks(default=Mark(then + MINUTE, SMALLEST_ID), p9=place(engine, jobs["c", 9][0])),
    }
    asked = {"c": 9, "b": 3, "a": 9}
    expected = [jobs["c", 9][1], *jobs["b", 0], jobs["b", 5][0], jobs["a", 0][1], *jobs["a", 5]]
    assert behind(store, given, asked) == (expected, True)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
@pytest.mark.parametrize("odd", ["-infinity", "0044-03-15 BC", "0001-01-01T00:00:00Z"])
def test_without_a_mark_the_oldest_jobs_are_found(engine: Engine, store: Store, odd: str, zone: str) -> None:
    """Whatever the column holds, and in whatever zone the session reads it."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {engine.url.database} SET timezone TO '{zone}'")
    engine.dispose()
    job_id = add_job(engine, run_at=text(f"cast('{odd}' AS timestamptz)"))
    mark = Mark(store.now(), SMALLEST_ID)
    assert behind(store, {"default": marks(default=mark)}, {"default": 9}) == ([], True)
    assert behind(store, {"default": marks(default=mark, p5=None)}, {"default": 9}) == ([job_id], True)


def test_the_time_is_the_servers(engine: Engine, store: Store) -> None:
    """And it is not before one that was read before."""
    earlier = server_time(engine)
    assert earlier <= store.now() <= server_time(engine)
    assert store.now().astimezone(UTC) >= earlier


def _parameters(given: Marks, quota: int) -> dict[str, Any]:
    return {
        "queues": ["default"],
        "quotas": [quota],
        "kinds": ["test"],
        "token": uuid4(),
        "lease": MINUTE,
        "runner": "first",
        "low_times": [mark and mark.run_at for mark in given],
        "low_ids": [mark and mark.id for mark in given],
    }


def test_a_second_claim_skips_what_the_first_has_not_committed(engine: Engine, other: Store) -> None:
    """Two claims behind the same marks share what is there without waiting, and no job is taken twice."""
    ids = [add_job(engine, priority=number % 2) for number in range(8)]
    given = marks(p0=place(engine, ids[0]), p1=place(engine, ids[1]))
    with engine.begin() as first:
        taken = sorted(row.id for row in first.execute(claim(), _parameters(given, 2)))
        rest, through = behind(other, {"default": given}, {"default": 9})
    assert (taken, sorted(rest), through) == ([ids[2], ids[4]], [ids[3], *ids[5:]], True)
    assert {read_job(engine, job_id).attempts for job_id in ids[2:]} == {1}
    assert behind(other, {}, {"default": 9}) == (ids[:2], True)


def test_a_job_committed_late_is_behind_the_mark(engine: Engine, store: Store) -> None:
    """Its due time is the start of its transaction: only a look from the first job on finds it."""
    with engine.begin() as slow:
        late = slow.execute(
            text("INSERT INTO jobqueue_jobs (kind) VALUES ('test') RETURNING id")
        ).scalar_one()
        job_id = add_job(engine)
        given = {"default": marks(p5=place(engine, job_id))}
        assert behind(store, {}, {"default": 9}) == ([job_id], True)
    assert read_job(engine, late).run_at < place(engine, job_id).run_at
    assert behind(store, given, {"default": 9}) == ([], True)
    assert behind(store, {}, {"default": 9}) == ([late], True)


def test_the_way_around_a_refused_row_begins_behind_the_marks_too(engine: Engine, store: Store) -> None:
    """It may end before the queue does, and doesn't say that it has seen everything."""
    ids = [add_job(engine) for _ in range(5)]
    refuse(engine, ids[2], "RAISE 'no'")
    given = {"default": marks(p5=place(engine, ids[0]))}
    assert behind(store, given, {"default": 9}) == ([ids[1], *ids[3:]], False)
    assert behind(store, given, {"default": 9}) == ([], False)
    assert read_job(engine, ids[0]).status == "ready"
