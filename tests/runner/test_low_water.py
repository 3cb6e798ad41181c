"""Runners whose claims begin behind marks, with transactions that commit late, and under an old snapshot."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobSettled
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import low_water
from tests.support.runners import Recorder, add, drain, running
from tests.support.waiting import wait_until

GRACE = timedelta(milliseconds=100)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test need not wait for seconds until a job stands behind the marks."""
    monkeypatch.setattr(low_water, "GRACE", GRACE)


@pytest.fixture
def old_snapshot(engine: Engine) -> Iterator[None]:
    """Somebody has read the table and stays."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as somebody:
        somebody.execute(text("SELECT count(*) FROM jobqueue_jobs"))
        yield


def _counting() -> tuple[Registry, Counter[int]]:
    jobs, runs = Registry(), Counter[int]()
    lock = threading.Lock()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        with lock:
            runs[ctx.id] += 1

    return jobs, runs


def _pass_the_grace(engine: Engine, recorder: Recorder, since: Connection) -> None:
    """Until a job is done that was enqueued a grace after the beginning of this transaction, and another one after it."""
    began = since.execute(text("SELECT now()")).scalar_one()

    def is_past() -> bool:
        with engine.connect() as connection:
            query = text(
                "SELECT clock_timestamp() > cast(:began AS timestamptz) + 2 * cast(:grace AS interval)"
            )
            return bool(connection.execute(query, {"began": began, "grace": GRACE}).scalar_one())

    wait_until(is_past, what="the grace")
    for _ in range(2):
        settled = len(recorder.of(JobSettled))
        with engine.begin() as connection:
            add(connection, "work")
        recorder.wait_for(JobSettled, count=settled + 1)


def test_a_job_that_is_committed_late_is_found(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is behind the marks by then: the next full look comes for it, and no claim before that."""
    jobs, runs = _counting()
    monkeypatch.setattr(low_water, "FULL_LOOK_INTERVAL", 3600.0)
    monkeypatch.setattr(low_water, "LONGEST_INTERVAL", 3600.0)
    with running(jobs, database_url) as recorder:
        with engine.begin() as slow:
            late = add(slow, "work")
            _pass_the_grace(engine, recorder, slow)
        with engine.begin() as connection:
            after = add(connection, "work")
        wait_until(lambda: runs[after], what="a job that is committed in time")
        assert not runs[late]
    with running(jobs, database_url):
        wait_until(lambda: runs[late], what="the late job, by the first look of a runner")
    monkeypatch.undo()
    monkeypatch.setattr(low_water, "GRACE", GRACE)
    with running(jobs, database_url) as recorder:
        with engine.begin() as slow:
            late = add(slow, "work")
            _pass_the_grace(engine, recorder, slow)
        wait_until(lambda: runs[late], what="the late job, by a full look")
        with engine.begin() as connection:
            dated_back = add(connection, "work", run_at="2020-01-01T00:00:00Z")
        wait_until(lambda: runs[dated_back], what="a job with a due time in the past")
    assert set(runs.values()) == {1}


def test_a_burst_finds_what_is_behind_its_marks(engine: Engine, database_url: str) -> None:
    """A handler enqueues a job with a due time in the past: the burst doesn't end without it."""
    jobs, runs = _counting()

    @jobs.handler("parent")
    def parent(_ctx: JobContext) -> None:
        with engine.begin() as connection:
            add(connection, "work", run_at="2020-01-01T00:00:00Z")

    with engine.begin() as connection:
        for _ in range(3):
            add(connection, "parent")
    drain(jobs, database_url, queues={"default": 1}, poll_interval=timedelta(minutes=5))
    assert list(runs.values()) == [1] * 3


def test_slow_committers_and_several_runners(engine: Engine, database_url: str, old_snapshot: None) -> None:
    """Every job runs once, whoever commits when, while nothing can be vacuumed."""
    jobs, runs = _counting()
    share, producers = 25, 4

    def produce(number: int) -> list[int]:
        ids = []
        for turn in range(share):
            with engine.begin() as connection:
                ids += [add(connection, "work", priority=(number + turn) % 3) for _ in range(3)]
                # The transaction's own work, up to three times the grace.
                seconds = (turn * 7 + number) % 10 / 10 * 3 * GRACE.total_seconds()
                connection.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": seconds})
        return ids

    with running(jobs, database_url), running(jobs, database_url), running(jobs, database_url):
        with ThreadPoolExecutor(producers) as pool:
            added = [job_id for ids in pool.map(produce, range(producers)) for job_id in ids]
        wait_until(lambda: len(runs) == len(added), what="every job")
    assert runs == dict.fromkeys(added, 1)
    with engine.connect() as connection:
        query = "SELECT DISTINCT status, attempts, returned FROM jobqueue_jobs WHERE attempts - returned <> 1 OR status <> 'done'"
        assert connection.execute(text(query)).all() == []


def test_jobs_given_back_by_a_runner_are_claimed_again(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed ahead, given back when a long job holds the slot, and taken again without a full look."""
    monkeypatch.setattr(low_water, "FULL_LOOK_INTERVAL", 3600.0)
    monkeypatch.setattr(low_water, "LONGEST_INTERVAL", 3600.0)
    jobs, runs = _counting()
    release, begun = threading.Event(), threading.Event()

    @jobs.handler("long")
    def long(_ctx: JobContext) -> None:
        begun.set()
        release.wait(60)

    with engine.begin() as connection:
        for number in range(2000):
            add(connection, "long" if number == 1000 else "work", run_at="2020-01-01T00:00:00Z")
    with running(jobs, database_url, queues={"default": 1}) as recorder:
        assert begun.wait(60)
        wait_until(
            lambda: [event for event in recorder.of(JobSettled) if event.verb == "release"],
            what="the give-back",
        )
        release.set()
        recorder.wait_for(JobSettled, count=2000)
        wait_until(lambda: len(runs) == 1999, what="every job")
    assert set(runs.values()) == {1}
