"""A commit wakes an idle runner: with a poll interval of an hour, whatever runs was not found by polling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Engine, make_url, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobSettled, JobStarted, WakeUpFailed
from sa_jobqueue.outcomes import Retry
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner
from sa_jobqueue.statements.claim import claim
from tests.support.proxy import Proxy, sends
from tests.support.runners import Recorder, add, running, settings
from tests.support.waiting import PATIENCE, wait_until

CLAIM = sends(claim())
HOUR = timedelta(hours=1)


@pytest.fixture
def jobs() -> Registry:
    """One handler that does nothing."""
    registry = Registry()
    registry.handler("work")(lambda: None)
    return registry


def _insert(engine: Engine, kind: str = "work", count: int = 1, delay: str = "0s") -> None:
    """One commit."""
    with engine.begin() as connection:
        statement = text(
            "INSERT INTO jobqueue_jobs (kind, run_at)"
            " SELECT :kind, clock_timestamp() + CAST(:delay AS interval) FROM generate_series(1, :count)"
        )
        connection.execute(statement, {"kind": kind, "delay": delay, "count": count})


def _waiting(engine: Engine) -> int:
    """How many runners say that they wait."""
    with engine.connect() as connection:
        query = "SELECT count(*) FROM jobqueue_idle WHERE waiting_until > clock_timestamp()"
        return int(connection.execute(text(query)).scalar_one())


def _wait_until_idle(engine: Engine, runners: int = 1) -> None:
    wait_until(lambda: _waiting(engine) == runners, what="a runner that waits")


@contextmanager
def idle(registry: Registry, engine: Engine, **changes: object) -> Iterator[Recorder]:
    """A runner that nothing but a notification finds work for."""
    with running(registry, engine.url, **{"poll_interval": HOUR, **changes}) as recorder:
        _wait_until_idle(engine)
        yield recorder


def test_a_commit_wakes_an_idle_runner(engine: Engine, jobs: Registry) -> None:
    """Each one, also the hundredth."""
    with idle(jobs, engine) as recorder:
        for count in range(1, 101):
            _insert(engine)
            recorder.wait_for(JobSettled, count=count)


def test_a_commit_that_was_under_way_is_found_soon(engine: Engine, jobs: Registry) -> None:
    """It saw no runner that waits, and tells nobody: the first looks of an idle runner find it."""
    with engine.connect() as producer:
        add(producer, "work")
        with idle(jobs, engine) as recorder:
            producer.commit()
            recorder.wait_for(JobSettled)


def test_one_commit_of_many_jobs_feeds_all_slots(engine: Engine, jobs: Registry) -> None:
    """One notification is enough for them."""
    with idle(jobs, engine) as recorder:
        _insert(engine, count=1000)
        recorder.wait_for(JobSettled, count=1000)


def test_a_retry_starts_when_it_is_due(engine: Engine) -> None:
    """Nobody notifies for it, and no poll would find it within the hour."""
    registry = Registry()

    @registry.handler("again")
    def again(ctx: JobContext) -> Retry | None:
        return Retry(after=timedelta(milliseconds=200)) if ctx.attempt == 1 else None

    with idle(registry, engine) as recorder:
        _insert(engine, "again")
        first, second = recorder.wait_for(JobSettled, count=2)
    assert (first.status, second.status) == ("ready", "done")


def test_a_job_of_the_near_future_starts_when_it_is_due(engine: Engine, jobs: Registry) -> None:
    """The commit is told, the job is not due yet, and its time is asked for. Two in a row, for the second as well."""
    with idle(jobs, engine, poll_interval=timedelta(minutes=10)) as recorder:
        _insert(engine, delay="0.4s")
        _insert(engine, delay="200s")
        _insert(engine, delay="0.8s")
        recorder.wait_for(JobSettled, count=2)
        assert len(recorder.of(JobStarted)) == 2


def test_whoever_has_no_free_slot_is_not_woken(engine: Engine, proxy: Proxy) -> None:
    """It looks no sooner for 300 commits, and after a moment they notify nobody any more."""
    registry, gate = Registry(), threading.Event()
    registry.handler("long")(lambda: gate.wait(PATIENCE))
    with running(registry, proxy.url, poll_interval=HOUR, queues={"default": 2}) as recorder:
        try:
            _wait_until_idle(engine)
            _insert(engine, "long", count=2)
            recorder.wait_for(JobStarted, count=2)
            claims = proxy.count(CLAIM)
            for _ in range(300):
                _insert(engine, "long")
            wait_until(lambda: _waiting(engine) == 0, what="the flag's end")
            assert proxy.count(CLAIM) == claims
        finally:
            gate.set()
        recorder.wait_for(JobSettled, count=302)


def test_one_job_is_one_look_of_each_runner(
    engine: Engine, jobs: Registry, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight that wait each looks once, and once more from the beginning where that is due; nobody starts over."""
    # The looks of a flag that has just been set go on, more and more seldom: here there is none but the one at once.
    monkeypatch.setattr("sa_jobqueue.runner.idling.SECOND_LOOK", HOUR.total_seconds())
    with ExitStack() as stack:
        for number in range(8):
            stack.enter_context(running(jobs, proxy.url, poll_interval=HOUR, name=f"runner-{number}"))
        _wait_until_idle(engine, 8)
        proxy.wait_for(CLAIM, count=8 * 2)  # before and after the flag
        wait_until(lambda: _still(proxy), what="a pause in the looks")
        for _ in range(3):
            claims = proxy.count(CLAIM)
            _insert(engine)
            wait_until(lambda: _still(proxy), what="a pause in the looks")
            assert 1 <= proxy.count(CLAIM) - claims <= 2 * 8


def _still(proxy: Proxy, moment: float = 1.2) -> bool:
    """Nobody claims for a moment, in which every queue has become due for a look from its beginning."""
    claims = proxy.count(CLAIM)
    threading.Event().wait(moment)
    return proxy.count(CLAIM) == claims


def test_the_listener_is_never_in_a_transaction(engine: Engine, jobs: Registry) -> None:
    """One that is would fill the notification queue until commits fail."""
    query = text("SELECT state FROM pg_stat_activity WHERE query LIKE 'LISTEN %'")
    with idle(jobs, engine) as recorder:
        for count in range(1, 51):
            _insert(engine)
            recorder.wait_for(JobSettled, count=count)
            with engine.connect() as connection:
                assert connection.execute(query).scalars().all() == ["idle"]
        with engine.connect() as connection:
            assert connection.execute(text("SELECT pg_notification_queue_usage()")).scalar_one() == 0


def test_a_stop_is_heard_and_leaves_nothing(engine: Engine, jobs: Registry) -> None:
    """The listener waits for the server for half a minute at a time, and ends at once all the same."""
    with idle(jobs, engine):
        assert _threads() == 1
    assert _threads() == 0
    assert _waiting(engine) == 0


def _threads() -> int:
    return sum(thread.name == "sa_jobqueue-listen" for thread in threading.enumerate())


def test_without_listening_it_polls(engine: Engine, jobs: Registry) -> None:
    """No connection, no flag, and the jobs run all the same."""
    with running(jobs, engine.url, listen=False) as recorder:
        _insert(engine)
        recorder.wait_for(JobSettled)
        assert _threads() == 0
        assert _waiting(engine) == 0


def test_a_runner_without_the_right_to_wait_polls(engine: Engine, jobs: Registry) -> None:
    """One warning; no commit pays for it."""
    with engine.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS sajq_poller"))
        connection.execute(text("CREATE ROLE sajq_poller LOGIN"))
        connection.execute(text("GRANT SELECT, INSERT, UPDATE, DELETE ON jobqueue_jobs TO sajq_poller"))
    try:
        url = make_url(str(engine.url)).set(username="sajq_poller")
        recorder = Recorder()
        with Runner(jobs, url, settings(), subscribers=[recorder]):
            (failed,) = recorder.wait_for(WakeUpFailed)
            for count in range(1, 4):
                _insert(engine)
                recorder.wait_for(JobSettled, count=count)
        assert (failed.cause, failed.fault) == ("refused", "InsufficientPrivilege, SQLSTATE 42501")
        assert recorder.of(WakeUpFailed) == [failed]
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP OWNED BY sajq_poller"))
            connection.execute(text("DROP ROLE sajq_poller"))
