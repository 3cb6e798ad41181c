"""Handlers that run for too long: told, no longer renewed, given up when the lease is about over, and run again."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    HandlerTimedOut,
    JobRescued,
    JobSettled,
    JobStarted,
    LoopFailed,
    OutcomeDropped,
)
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import Runner
from sa_jobqueue.states import JobStatus, Verb
from tests.support.runners import (
    LEDGER,
    Recorder,
    add,
    ledger,
    process,
    row,
    running,
    settings,
    wait_for_row,
)
from tests.support.waiting import PATIENCE, wait_until

APP = "tests.apps.ledger:jobs"
TIMEOUT = timedelta(milliseconds=200)
AT_ONCE = fixed(timedelta(0))


def _hanging_once(
    gate: threading.Event, contexts: list[JobContext], timeout: timedelta | None = TIMEOUT
) -> Registry:
    """`hang` hangs at its first attempt until the gate opens."""
    jobs = Registry()
    jobs.handler("quick")(lambda: None)

    @jobs.handler("hang", timeout=timeout, retry=AT_ONCE)
    def hang(ctx: JobContext) -> None:
        contexts.append(ctx)
        if ctx.attempt == 1:
            assert gate.wait(PATIENCE)

    return jobs


def test_a_hung_handler_costs_its_lease_and_its_slot(engine: Engine, database_url: str) -> None:
    """Told and renewed no more; settled as timed out; run again by another; its own outcome is thrown away."""
    gate, contexts = threading.Event(), list[JobContext]()
    jobs = _hanging_once(gate, contexts)
    with engine.begin() as connection:
        job = add(connection, "hang")
    one_slot: dict[str, Any] = {"queues": {"default": 1}, "lease": timedelta(seconds=3)}
    with running(jobs, database_url, **one_slot) as first:
        (told,) = first.wait_for(HandlerTimedOut)
        assert (told.job_id, told.kind, told.queue, told.attempt) == (job, "hang", "default", 1)
        assert (told.timeout, told.given_up_in, told.cancelled) == (TIMEOUT, timedelta(seconds=2), False)
        leases, known_lost = set(), []

        def given_up() -> bool:
            known_lost.append(contexts[0].lost)
            leases.add(row(engine, job).lease_until)
            return bool(first.of(JobSettled))

        wait_until(given_up)
        assert len(leases - {None}) == 1, "it is renewed no more"
        assert not known_lost[0], "until then its outcome would have counted"
        assert contexts[0].lost
        (settled,) = first.of(JobSettled)
        assert (settled.verb, settled.status, settled.duration) == (Verb.RETRY, JobStatus.READY, None)
        assert settled.error == "TimeoutError: timed out after 200ms"
        ready = row(engine, job)
        assert (ready.status, ready.attempts, ready.last_error) == ("ready", 1, settled.error)
        with engine.begin() as connection:
            other = add(connection, "quick")
        with running(jobs, database_url, **one_slot) as second:
            second.wait_for(JobSettled, count=2)
            assert {settled.job_id for settled in second.of(JobSettled)} == {job, other}
        done = row(engine, job)
        assert (done.status, done.attempts) == ("done", 2)
        assert len(first.of(JobStarted)) == 1, "its only slot is occupied"
        gate.set()
        (dropped,) = first.wait_for(OutcomeDropped)
        assert (dropped.job_id, dropped.attempt, dropped.verb) == (job, 1, Verb.COMPLETE)
        with engine.begin() as connection:
            last = add(connection, "quick")
        wait_for_row(engine, last, lambda it: it.status == "done")
        assert len(first.of(JobStarted)) == 2, "and free again when the handler has ended"
    assert row(engine, job) == done
    assert len(first.of(HandlerTimedOut)) == 1
    assert first.of(JobRescued) + second.of(JobRescued) == []


def test_what_ends_late_but_within_its_lease_counts(engine: Engine, database_url: str) -> None:
    """A timeout alone takes nothing away: nobody else can have had the job."""
    gate, contexts = threading.Event(), list[JobContext]()
    with engine.begin() as connection:
        job = add(connection, "hang")
    with running(_hanging_once(gate, contexts), database_url, lease=timedelta(minutes=5)) as recorder:
        recorder.wait_for(HandlerTimedOut)  # long before any renewal is due
        gate.set()
        (settled,) = recorder.wait_for(JobSettled)
        assert settled.verb is Verb.COMPLETE
        assert settled.duration > timedelta(0), "not counted as given up"
    done = row(engine, job)
    assert (done.status, done.attempts, done.last_error) == ("done", 1, None)
    assert not contexts[0].lost


def test_the_last_attempt_that_hangs_leaves_a_dead_job(engine: Engine, database_url: str) -> None:
    """It comes to rest as after any other failure."""
    gate = threading.Event()
    with engine.begin() as connection:
        job = add(connection, "hang", max_attempts=1)
    with running(_hanging_once(gate, []), database_url, lease=timedelta(milliseconds=900)):
        dead = wait_for_row(engine, job, lambda it: it.status == "dead")
        gate.set()
    assert (dead.reason, dead.attempts) == ("exhausted", 1)
    assert dead.last_error == "TimeoutError: timed out after 200ms"


def test_a_runner_has_a_timeout_for_all(engine: Engine, database_url: str) -> None:
    """The same by the command and by the API, for handlers that name none; the process ends all the same."""
    gate = threading.Event()
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        commanded = add(connection, "nap", '{"seconds": 60}')
    with process(APP, database_url, "--timeout", "300ms", "--lease", "900ms") as runner:
        wait_for_row(engine, commanded, lambda it: it.last_error is not None)
        assert "still runs after its timeout of 300ms" in runner.text
        runner.send(signal.SIGTERM)
        assert runner.wait() in (0, 7)  # 7 when the next attempt has begun by then
        assert ledger(engine)[0].note == "begin"
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM jobqueue_jobs"))
        called = add(connection, "hang")
    short = {"timeout": timedelta(milliseconds=300), "lease": timedelta(milliseconds=900)}
    with running(_hanging_once(gate, [], timeout=None), database_url, **short):
        first_error = wait_for_row(engine, called, lambda it: it.last_error is not None).last_error
        gate.set()
    assert first_error == "TimeoutError: timed out after 300ms"


@pytest.mark.parametrize("timeout", [None, timedelta(minutes=1)])
def test_only_a_runner_with_timeouts_has_a_timekeeper(database_url: str, timeout: timedelta | None) -> None:
    """Nobody pays for what nobody asked for."""
    jobs = Registry()
    jobs.handler("quick", timeout="never")(lambda: None)
    with running(jobs, database_url, timeout=timeout):
        names = {thread.name for thread in threading.enumerate()}
    assert ("sa_jobqueue-timeouts" in names) is (timeout is not None)


def test_a_stop_does_not_wait_for_who_was_given_up(engine: Engine, database_url: str) -> None:
    """Its outcome is written; the grace period is for handlers whose outcome still counts."""
    gate = threading.Event()
    with engine.begin() as connection:
        job = add(connection, "hang")
    lasting: dict[str, Any] = {"grace": timedelta(minutes=10), "queues": {"default": 1}}
    with running(_hanging_once(gate, []), database_url, lease=timedelta(milliseconds=900), **lasting):
        wait_for_row(engine, job, lambda it: it.last_error is not None)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60
    gate.set()


def test_a_burst_does_not_wait_for_ever_for_who_was_given_up(engine: Engine, database_url: str) -> None:
    """A hung thread holds its only slot: whether anything is due can't be asked, and that is told by the exit code."""
    gate, recorder = threading.Event(), Recorder()
    with engine.begin() as connection:
        job, other = add(connection, "hang"), add(connection, "quick")
    one_slot: dict[str, Any] = {"queues": {"default": 1}, "lease": timedelta(milliseconds=600)}
    jobs = _hanging_once(gate, [])
    runner = Runner(jobs, database_url, settings(burst=True, **one_slot), subscribers=[recorder])
    assert runner.run(handle_signals=False) == 1
    (told,) = [failed for failed in recorder.of(LoopFailed) if failed.retry_in is None]
    assert "no slot is free in default" in told.error
    assert (row(engine, job).status, row(engine, other).status) == ("ready", "ready")
    gate.set()


def test_an_async_handler_is_cancelled_at_its_timeout(engine: Engine, database_url: str) -> None:
    """It ends at once, as timed out, and its slot is free: nothing waits for the lease."""
    jobs, cleaned = Registry(), threading.Event()

    @jobs.handler("hang", timeout=TIMEOUT, retry=AT_ONCE)
    async def hang(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(600)
            finally:
                cleaned.set()

    with engine.begin() as connection:
        job = add(connection, "hang")
    one_slot: dict[str, Any] = {"queues": {"default": 1}, "lease": timedelta(minutes=5)}
    with running(jobs, database_url, **one_slot) as recorder:
        failed, done = recorder.wait_for(JobSettled, count=2)
        assert [(told.attempt, told.cancelled) for told in recorder.of(HandlerTimedOut)] == [(1, True)]
    assert cleaned.is_set()
    assert (failed.verb, done.verb) == (Verb.RETRY, Verb.COMPLETE)
    assert failed.error.startswith("TimeoutError: timed out after 200ms")
    assert failed.duration > timedelta(0)
    assert row(engine, job).attempts == 2
