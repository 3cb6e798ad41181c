"""What ends a handler, or its runner, while it completes its job or after that: the job is told as what it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.events import HandlerTimedOut, JobSettled, OutcomeDropped, RunnerStopped, SettleDelayed
from sa_jobqueue.runner import Runner
from tests.support.effects import DONE, LONG, Completing, Halt, commits, effects, one_job, told
from tests.support.proxy import Fate, Proxy
from tests.support.runners import Recorder, row, running, settings
from tests.support.waiting import PATIENCE, wait_until

TIMEOUT, GRACE = timedelta(milliseconds=200), timedelta(milliseconds=300)
#: For completions that come before it, also on a busy machine.
LATE = timedelta(seconds=1.5)


def _run_until(runner: Runner, wait: Callable[[], object]) -> int:
    """As a process does that is stopped once something has happened: the exit code."""

    def stop() -> None:
        try:
            wait()
        finally:
            runner.request_stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    code = runner.run()
    stopper.join()
    return code


def test_a_timeout_after_the_completion(engine: Engine, database_url: str, where: str) -> None:
    """An async handler is cancelled, a thread goes on; neither is settled in its place, and the job stays done."""
    job = one_job(engine)
    halt = Halt()
    work = Completing(where, after=halt, settings={"timeout": LATE})
    with running(work.jobs, database_url, lease=timedelta(milliseconds=900)) as recorder:
        (late,) = recorder.wait_for(HandlerTimedOut)
        assert late.completed
        if where == "thread":
            # Given up, it would be: nothing comes of that.
            wait_until(lambda: row(engine, job).status == "done")
            halt.go_on.set()
        recorder.wait_for(JobSettled)
        halt.go_on.set()
    assert told(recorder) == [DONE]
    assert [it.cause for it in recorder.of(OutcomeDropped)] == (["completed"] if where == "asyncio" else [])
    assert effects(engine) == {job: 1}


def test_a_runner_that_ends_while_a_handler_runs_on_after_its_completion(
    engine: Engine, database_url: str, where: str
) -> None:
    """It is waited for as any handler; past the grace period nothing is written, the job is told as done."""
    job = one_job(engine)
    halt = Halt()
    work, recorder = Completing(where, after=halt), Recorder()
    grace = settings(grace=GRACE, **LONG)
    with Runner(work.jobs, database_url, grace, subscribers=[recorder]):
        assert halt.reached.wait(PATIENCE)
    (stopped,) = recorder.of(RunnerStopped)
    assert (stopped.exit_code, stopped.left_to_leases, stopped.handed_back) == (7, 0, 0)
    halt.go_on.set()
    assert told(recorder) == [DONE]
    assert [it.cause for it in recorder.of(OutcomeDropped)] == ["completed"]
    assert (row(engine, job).status, effects(engine)) == ("done", {job: 1})


def test_a_process_that_ends_while_a_handler_runs_on_after_its_completion(
    engine: Engine, database_url: str, where: str
) -> None:
    """It is not handed back: the job is done, whatever its handler still does."""
    job = one_job(engine)
    halt = Halt()
    work, recorder = Completing(where, after=halt), Recorder()
    runner = Runner(work.jobs, database_url, settings(grace=GRACE, **LONG), subscribers=[recorder])
    code = _run_until(runner, lambda: halt.reached.wait(PATIENCE))
    halt.go_on.set()
    (stopped,) = recorder.of(RunnerStopped)
    assert (stopped.handed_back, stopped.left_to_leases) == (0, 0)
    # An async handler is cancelled and through in time; a thread is left behind.
    assert code == (7 if where == "thread" else 0)
    assert told(recorder) == [DONE]
    assert [it.cause for it in recorder.of(OutcomeDropped)] == ["completed"]
    assert (row(engine, job).status, effects(engine)) == ("done", {job: 1})


def test_a_process_that_ends_during_a_commit(engine: Engine, proxy: Proxy) -> None:
    """Its retry follows the COMMIT, and whichever lands first counts: here it waits, and finds the job done."""
    job = one_job(engine)
    held = proxy.on(commits, Fate.HOLD)
    work, recorder = Completing("thread"), Recorder()
    runner = Runner(work.jobs, proxy.url, settings(grace=GRACE, **LONG), subscribers=[recorder])

    def release() -> None:
        recorder.wait_for(SettleDelayed)
        held.release()

    releaser = threading.Thread(target=release)
    releaser.start()
    _run_until(runner, held.wait)
    releaser.join()
    assert told(recorder) == [DONE]
    assert (row(engine, job).status, effects(engine)) == ("done", {job: 1})
    assert [it.handed_back for it in recorder.of(RunnerStopped)] == [0]


def test_a_process_that_ends_while_the_answer_to_a_commit_is_missing(
    engine: Engine, proxy: Proxy, where: str
) -> None:
    """What is found to be done is handed back to nobody, though it was about to be."""
    job = one_job(engine)
    unanswered = proxy.on(commits, Fate.SWALLOW_ANSWER)
    work, recorder = Completing(where), Recorder()
    runner = Runner(work.jobs, proxy.url, settings(grace=GRACE, **LONG), subscribers=[recorder])
    _run_until(runner, unanswered.wait)
    assert told(recorder) == [DONE]
    assert [(it.handed_back, it.left_to_leases) for it in recorder.of(RunnerStopped)] == [(0, 0)]
    assert (row(engine, job).status, effects(engine)) == ("done", {job: 1})


def test_an_end_within_the_block(engine: Engine, database_url: str, where: str) -> None:
    """The host has stopped its runner: the lease is left to itself, and no fence is sent any more."""
    job = one_job(engine)
    halt = Halt()
    work, recorder = Completing(where, inside=halt), Recorder()
    with Runner(work.jobs, database_url, settings(grace=GRACE, **LONG), subscribers=[recorder]):
        assert halt.reached.wait(PATIENCE)
        if where == "asyncio":
            # It is cancelled: what it awaits in a thread is not.
            threading.Timer(GRACE.total_seconds() * 2, halt.go_on.set).start()
    halt.go_on.set()
    wait_until(lambda: work.errors)
    if where == "thread":
        assert [type(error) for error in work.errors] == [LeaseLostError]
    assert (row(engine, job).status, effects(engine)) == ("running", {})
    assert told(recorder) == []
    assert [it.left_to_leases for it in recorder.of(RunnerStopped)] == [1]


def test_a_timeout_during_a_commit(engine: Engine, proxy: Proxy) -> None:
    """A thread that is given up then: the retry in its place waits for the COMMIT, and finds the job done."""
    job = one_job(engine)
    held = proxy.on(commits, Fate.HOLD)
    work = Completing("thread", settings={"timeout": TIMEOUT})
    with running(work.jobs, proxy.url, lease=timedelta(seconds=6)) as recorder:
        held.wait()
        recorder.wait_for(SettleDelayed)
        assert row(engine, job).status == "running"
        held.release()
        recorder.wait_for(JobSettled)
    assert told(recorder) == [DONE]
    assert work.runs == effects(engine) == {job: 1}
    assert not work.errors
