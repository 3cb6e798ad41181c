"""Async handlers through a whole runner: one loop for all, which no handler can turn against the others."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    CancelRequested,
    JobSettled,
    JobStarted,
    LeaseLost,
    LoopBlocked,
    OutcomeDropped,
    RunnerStarted,
    RunnerStopped,
)
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import QueueSettings, Runner
from tests.support.runners import LEDGER, Recorder, add, ledger, process, row, running, settings
from tests.support.waiting import PATIENCE, wait_until

APP = "tests.apps.awaits:jobs"
ON_LOOP = {"default": QueueSettings(10, executor="asyncio")}
ON_THREADS = {"default": QueueSettings(4, executor="thread")}


def _notes(engine: Engine, note: str) -> Counter[int]:
    """How often each job wrote this."""
    return Counter(entry.job_id for entry in ledger(engine) if entry.note == note)


def _async_registry(gate: Any) -> Registry:
    jobs = Registry()

    @jobs.handler("work", retry=fixed(timedelta(0)))
    async def work(ctx: JobContext) -> None:
        while not gate.is_set():
            await asyncio.sleep(0.01)

    return jobs


@pytest.mark.parametrize("queues", [ON_LOOP, ON_THREADS, {"default": 3}], ids=["asyncio", "thread", "chosen"])
def test_any_kind_may_stand_in_any_queue(engine: Engine, database_url: str, queues: Any) -> None:
    """Both executors carry out both colours; without a choice, a queue with an async handler gets the loop."""
    jobs, ran = Registry(), []

    @jobs.handler("async")
    async def asynchronous(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    jobs.handler("def")(lambda number: ran.append(number))
    with engine.begin() as connection:
        ids = [add(connection, kind, f'{{"number": {n}}}') for n in range(10) for kind in ("async", "def")]
    with running(jobs, database_url, queues=queues) as recorder:
        recorder.wait_for(JobSettled, count=20)
    (started,) = recorder.of(RunnerStarted)
    assert started.executors == {"default": "thread" if queues is ON_THREADS else "asyncio"}
    assert Counter(ran) == dict.fromkeys(range(10), 2)
    assert {row(engine, job).status for job in ids} == {"done"}


def test_a_sigterm_hands_back_whoever_awaits(engine: Engine, database_url: str) -> None:
    """Code 7 soon after the grace; one that cleans up does, one that shields itself is decided in its place.

    A second runner starts all of them at once, long before their leases end.
    """
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        ids = [add(connection, "await", '{"seconds": 120}') for _ in range(2)]
        cleaning, shielding = add(connection, "clean-up"), add(connection, "shield")
        ids += [cleaning, shielding]
    options = ("--queues", "default:10@asyncio", "--lease", "5m")
    with process(APP, database_url, *options, "--grace", "500ms") as runner:
        wait_until(lambda: len(_notes(engine, "begin")) == 4, what="all four runs")
        runner.send(signal.SIGTERM)
        assert runner.wait() == 7
        assert "4 running jobs handed back" in runner.text
    assert (_notes(engine, "clean"), _notes(engine, "ignored")) == ({cleaning: 1}, {shielding: 1})
    for job in ids:
        ready = row(engine, job)
        assert (ready.status, ready.attempts, ready.returned) == ("ready", 1, 0)
        assert "shut down" in ready.last_error
        assert ready.run_at <= ready.updated_at
    with process(APP, database_url, *options):
        wait_until(lambda: _notes(engine, "begin") == dict.fromkeys(ids, 2), what="the second runs")


def test_within_the_grace_async_jobs_end_as_they_would(engine: Engine, database_url: str) -> None:
    """Exit code 0, nothing handed back."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "await", '{"seconds": 0.5}')
    with process(APP, database_url) as runner:
        wait_until(lambda: _notes(engine, "begin"), what="the run")
        runner.send(signal.SIGTERM)
        assert runner.wait() == 0
        assert "queues default:10@asyncio" in runner.text
    assert row(engine, job).status == "done"


def _awaiting() -> tuple[Registry, list[bool]]:
    """A handler that awaits for long, and what it is told of its lease when it is ended."""
    jobs, told = Registry(), list[bool]()

    @jobs.handler("work")
    async def work(ctx: JobContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            told.append(ctx.lost)

    return jobs, told


def _embedded(jobs: Registry, url: str, **changes: Any) -> tuple[Runner, Recorder]:
    recorder = Recorder()
    return Runner(jobs, url, settings(**changes), subscribers=[recorder]), recorder


def test_an_embedded_runner_cancels_and_leaves_the_rest_to_the_lease(
    engine: Engine, database_url: str
) -> None:
    """After the grace nothing is written any more, and no thread and no task of the runner is left."""
    jobs, told = _awaiting()
    with engine.begin() as connection:
        job = add(connection, "work")
    runner, recorder = _embedded(jobs, database_url, grace=timedelta(0), lease=timedelta(minutes=5))
    with runner:
        recorder.wait_for(JobStarted)
        held = row(engine, job)
    assert told == [True]
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("sa_jobqueue")] == []
    assert (row(engine, job).status, row(engine, job).lease_token) == ("running", held.lease_token)
    assert [(end.exit_code, end.left_to_leases) for end in recorder.of(RunnerStopped)] == [(7, 1)]
    assert recorder.of(JobSettled) == []


def test_a_handler_that_finishes_in_its_clean_up_has_finished(engine: Engine, database_url: str) -> None:
    """Nothing was handed back, so the code is 0."""
    jobs = Registry()

    @jobs.handler("work")
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    with engine.begin() as connection:
        job = add(connection, "work")
    runner, recorder = _embedded(jobs, database_url, grace=timedelta(0))
    stopper = threading.Thread(target=lambda: (recorder.wait_for(JobStarted), runner.request_stop()))
    stopper.start()
    assert runner.run() == 0
    stopper.join()
    assert row(engine, job).status == "done"


@pytest.mark.parametrize("queues", [ON_LOOP, ON_THREADS], ids=["asyncio", "thread"])
def test_a_request_to_cancel_reaches_a_running_async_job(
    engine: Engine, database_url: str, queues: Any
) -> None:
    """The next renewal brings it: the handler's task is cancelled, and so is the job."""
    jobs = Registry()
    stubborn_done = threading.Event()

    @jobs.handler("work")
    async def work() -> None:
        await asyncio.sleep(60)

    @jobs.handler("stubborn")
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stubborn_done.set()

    with engine.begin() as connection:
        job, other = add(connection, "work"), add(connection, "stubborn")
    with running(jobs, database_url, queues=queues, lease=timedelta(seconds=1)) as recorder:
        recorder.wait_for(JobStarted, count=2)
        with engine.begin() as connection:
            connection.execute(text("UPDATE jobqueue_jobs SET cancel_requested_at = now()"))
        recorder.wait_for(JobSettled, count=2)
        assert len(recorder.of(CancelRequested)) == 2
    cancelled, done = row(engine, job), row(engine, other)
    assert (cancelled.status, cancelled.reason, cancelled.last_error) == ("cancelled", "cancelled", None)
    assert stubborn_done.is_set()
    assert done.status == "done"


def test_a_request_to_cancel_keeps_what_waits_from_beginning(engine: Engine, database_url: str) -> None:
    """Claimed ahead and waiting in line: it is cancelled without a run."""
    gate, jobs = threading.Event(), Registry()
    short: list[int] = []

    @jobs.handler("work")
    async def work() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.01)

    jobs.handler("short")(lambda: short.append(1))
    many = "INSERT INTO jobqueue_jobs (kind, priority) SELECT '{}', {} FROM generate_series(1, {})"
    with engine.begin() as connection:
        connection.execute(text(many.format("short", 0, 2000)))
        connection.execute(text(many.format("work", 9, 50)))
    queues = {"default": QueueSettings(2, executor="asyncio")}
    with running(jobs, database_url, queues=queues, lease=timedelta(milliseconds=300)) as recorder:
        wait_until(lambda: sum(one.kind == "work" for one in recorder.of(JobStarted)) == 2)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE jobqueue_jobs SET cancel_requested_at = now() WHERE status = 'running'")
            )
        recorder.wait_for(CancelRequested)
        wait_until(lambda: sum(one.status == "cancelled" for one in recorder.of(JobSettled)) >= 2)
        gate.set()
        wait_until(lambda: not _unfinished(engine), what="everything to be finished")
    with engine.connect() as connection:
        query = "SELECT count(*) FROM jobqueue_jobs WHERE status = 'cancelled' AND kind = 'work'"
        cancelled = connection.execute(text(query)).scalar_one()
    started = sum(one.kind == "work" for one in recorder.of(JobStarted))
    assert cancelled >= 2
    assert started <= 52 - (cancelled - 2)


def _unfinished(engine: Engine) -> int:
    with engine.connect() as connection:
        query = "SELECT count(*) FROM jobqueue_jobs WHERE status IN ('ready', 'running')"
        return int(connection.execute(text(query)).scalar_one())


def test_a_lost_lease_cancels_the_handler(engine: Engine, database_url: str) -> None:
    """What it does can't land any more, so it is ended; its outcome is dropped and the new owner's row untouched."""
    jobs, told = _awaiting()
    with engine.begin() as connection:
        job = add(connection, "work")
    with running(
        jobs, database_url, lease=timedelta(seconds=1), rescue_interval=timedelta(hours=1)
    ) as recorder:
        recorder.wait_for(JobStarted)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE jobqueue_jobs SET lease_token = gen_random_uuid(), leased_by = 'the other',"
                    " lease_until = now() + interval '1 hour', attempts = attempts + 1"
                )
            )
        taken = row(engine, job)
        recorder.wait_for(LeaseLost)
        recorder.wait_for(OutcomeDropped)
    assert told == [True]
    assert row(engine, job) == taken


@pytest.mark.parametrize("queues", [ON_LOOP, ON_THREADS], ids=["asyncio", "thread"])
def test_a_cancellation_of_the_handlers_own_is_a_failure(
    engine: Engine, database_url: str, queues: Any
) -> None:
    """Its own timeouts and cancellations are its business: recorded by name, and retried by its policy."""
    jobs = Registry()

    @jobs.handler("timeout", retry=fixed(timedelta(hours=1)))
    async def times_out() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    @jobs.handler("cancel", retry=fixed(timedelta(hours=1)))
    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    with engine.begin() as connection:
        timed_out, cancelled = add(connection, "timeout"), add(connection, "cancel")
    with running(jobs, database_url, queues=queues) as recorder:
        recorder.wait_for(JobSettled, count=2)
    for job, name in ((timed_out, "TimeoutError"), (cancelled, "CancelledError")):
        failed = row(engine, job)
        assert (failed.status, failed.attempts, failed.returned) == ("ready", 1, 0)
        assert name in failed.last_error


def test_a_handler_that_blocks_the_loop_costs_no_lease(engine: Engine, database_url: str) -> None:
    """Several leases long, beside an idle runner that rescues: each job has one run, and a warning names the kind."""
    lease = timedelta(seconds=3)
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        ids = [add(connection, "await", '{"seconds": 0.1}') for _ in range(5)]
        blocking = add(connection, "block")
        ids.append(blocking)
    options = ("--queues", "default:6@asyncio", "--lease", "3s")
    with process(APP, database_url, *options) as first, ExitStack() as later:
        wait_until(lambda: _notes(engine, "begin")[blocking], what="the blocking run")
        second = later.enter_context(process(APP, database_url, *options))
        wait_until(lambda: "started" in second.text, what="the second runner")
        claimed_until = max(row(engine, job).lease_until for job in ids)

        def leases_later() -> bool:
            return min(row(engine, job).lease_until for job in ids) - claimed_until > 2 * lease

        wait_until(leases_later, what="the leases to be renewed beyond")
        wait_until(lambda: "blocked the event loop" in first.text, what="the warning")
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO ledger (note) VALUES ('release')"))
        wait_until(lambda: [row(engine, job).status for job in ids] == ["done"] * 6, what="all six")
        lines = [*first.text.splitlines(), *second.text.splitlines()]
    warnings = [line for line in lines if "blocked the event loop" in line]
    assert _notes(engine, "begin") == _notes(engine, "end") == dict.fromkeys(ids, 1)
    assert {row(engine, job).attempts for job in ids} == {1}
    assert len(warnings) == 1
    assert f"job {blocking} block" in warnings[0]
    assert "WARNING" in warnings[0]
    assert "to_thread" in warnings[0]


def test_an_async_handler_much_longer_than_the_lease_runs_once(engine: Engine, database_url: str) -> None:
    """Two runners that rescue, one by the command and one in a program: the lease never falls below a third."""
    lease = timedelta(seconds=1.5)
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        ids = [add(connection, "await", '{"seconds": 7.5}') for _ in range(4)]
    remaining = text(
        "SELECT min(lease_until - clock_timestamp()) FROM jobqueue_jobs WHERE status = 'running'"
    )
    sampled: list[timedelta] = []
    jobs = Registry()

    @jobs.handler("await")
    async def wait(ctx: JobContext, seconds: float) -> None:
        with engine.begin() as connection:
            note = "INSERT INTO ledger (job_id, attempt, note) VALUES (:job, :attempt, 'begin')"
            connection.execute(text(note), {"job": ctx.id, "attempt": ctx.attempt})
        await asyncio.sleep(seconds)

    queues = {"default": QueueSettings(2, executor="asyncio")}
    with (
        process(APP, database_url, "--queues", "default:2@asyncio", "--lease", "1500ms"),
        running(jobs, database_url, queues=queues, lease=lease),
        engine.connect() as watcher,
    ):
        watcher = watcher.execution_options(isolation_level="AUTOCOMMIT")
        wait_until(lambda: len(_notes(engine, "begin")) == 4, what="all four runs")
        deadline = time.monotonic() + PATIENCE
        while (left := watcher.execute(remaining).scalar_one()) is not None:
            sampled.append(left)
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        assert [row(engine, job).status for job in ids] == ["done"] * 4
    assert len(sampled) > 20
    assert min(sampled) > lease / 3
    assert _notes(engine, "begin") == dict.fromkeys(ids, 1)


def test_hundreds_wait_at_once_on_one_thread(engine: Engine, database_url: str) -> None:
    """As many handlers as the limit are under way together, and the runner has the threads that it has for one."""
    jobs, gate, waiting = Registry(), threading.Event(), [0]

    @jobs.handler("work")
    async def work() -> None:
        waiting[0] += 1
        while not gate.is_set():
            await asyncio.sleep(0.05)

    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO jobqueue_jobs (kind) SELECT 'work' FROM generate_series(1, 350)")
        )
    queues = {"default": QueueSettings(300, executor="asyncio")}
    with running(jobs, database_url, queues=queues) as recorder:
        wait_until(lambda: waiting[0] == 300)
        assert len([one for one in threading.enumerate() if one.name.startswith("sa_jobqueue")]) <= 9
        gate.set()
        recorder.wait_for(JobSettled, count=350)
    assert recorder.of(LoopBlocked) == []
