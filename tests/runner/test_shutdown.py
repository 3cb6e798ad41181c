"""The end of a runner: what never began goes back, what runs gets its grace, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    JobSettled,
    JobStarted,
    LoopFailed,
    OutcomeDropped,
    RunnerStarted,
    RunnerStopped,
    RunnerStopping,
)
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner, leases
from tests.support.runners import LEDGER, Recorder, add, ledger, process, row, running, settings, wait_for_row
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.once

APP = "tests.apps.ledger:jobs"


def _ours() -> list[str]:
    """Threads of any runner."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sa_jobqueue")]


def _connections(engine: Engine) -> int:
    return _count(engine, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %'")


def _count(engine: Engine, query: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


def _gated() -> tuple[Registry, threading.Event]:
    jobs, gate = Registry(), threading.Event()
    jobs.handler("work")(lambda: gate.wait(PATIENCE))
    return jobs, gate


def test_a_stop_gives_back_what_never_began_and_waits_for_what_runs(
    engine: Engine, database_url: str
) -> None:
    """Claimed ahead and not begun: ready again with the attempt given back. Begun: completed within the grace."""
    jobs, gate = _gated()
    jobs.handler("short")(lambda: None)
    with engine.begin() as connection:
        many = "INSERT INTO jobqueue_jobs (kind, priority) SELECT '{}', {} FROM generate_series(1, {})"
        connection.execute(text(many.format("short", 0, 3000)))
        connection.execute(text(many.format("work", 9, 200)))
    recorder = Recorder()
    runner = Runner(
        jobs,
        database_url,
        settings(queues={"default": 2}, lease=timedelta(minutes=1)),
        subscribers=[recorder],
    )
    runner.start()
    # Both handlers are in a long job, with others claimed ahead behind them: before the stall is noticed.
    wait_until(lambda: sum(event.kind == "work" for event in recorder.of(JobStarted)) == 2)
    stopping = threading.Thread(target=runner.stop)
    stopping.start()
    held = "SELECT count(*) FROM jobqueue_jobs WHERE status = 'running'"
    wait_until(lambda: _count(engine, held) == 2, what="only what runs is held")
    assert stopping.is_alive()
    gate.set()
    stopping.join(PATIENCE)
    with engine.connect() as connection:
        query = "SELECT status, attempts - returned, count(*) FROM jobqueue_jobs WHERE kind = 'work' GROUP BY 1, 2"
        assert sorted(map(tuple, connection.execute(text(query)))) == [("done", 1, 2), ("ready", 0, 198)]
    assert sum(event.kind == "work" for event in recorder.of(JobStarted)) == 2
    assert [stopped.exit_code for stopped in recorder.of(RunnerStopped)] == [0]


def test_past_the_grace_running_jobs_are_handed_back(engine: Engine, database_url: str) -> None:
    """Their attempt counts and its error tells why; another runner begins them within its poll interval."""
    jobs, gate = Registry(), threading.Event()
    lost = threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            wait_until(lambda: ctx.lost, what="the handler to be told")
            lost.set()
            gate.wait(PATIENCE)

    with engine.begin() as connection:
        job = add(connection, "work")
    recorder = Recorder()
    quick = settings(grace=timedelta(milliseconds=300), lease=timedelta(minutes=5))
    runner = Runner(jobs, database_url, quick, subscribers=[recorder])
    stopper = threading.Thread(target=lambda: (recorder.wait_for(JobStarted), runner.request_stop()))
    stopper.start()
    assert runner.run() == 7
    stopper.join()
    ready = row(engine, job)
    assert (ready.status, ready.attempts, ready.returned) == ("ready", 1, 0)
    assert "shut down" in ready.last_error
    assert lost.wait(PATIENCE)
    assert [(end.exit_code, end.handed_back) for end in recorder.of(RunnerStopped)] == [(7, 1)]
    with running(jobs, database_url) as second:
        begun = time.monotonic()
        second.wait_for(JobStarted)
        assert time.monotonic() - begun < 5
        gate.set()  # the first handler ends while the second run owns the job
        recorder.wait_for(OutcomeDropped)
        second.wait_for(JobSettled)
    done = row(engine, job)
    assert (done.status, done.attempts) == ("done", 2)
    assert len(recorder.of(JobSettled)) == 1


def test_no_grace_and_nothing_running_is_a_clean_end(engine: Engine, database_url: str) -> None:
    """A grace of nothing is no failure when nobody needs it."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    with engine.begin() as connection:
        add(connection, "work")
    recorder = Recorder()
    runner = Runner(jobs, database_url, settings(grace=timedelta(0)), subscribers=[recorder])
    stopper = threading.Thread(target=lambda: (recorder.wait_for(JobSettled), runner.request_stop()))
    stopper.start()
    assert runner.run() == 0
    stopper.join()


def test_stop_is_for_everybody_and_leaves_nothing(engine: Engine, database_url: str) -> None:
    """Twice, from another thread, and again after a restart: no thread and no connection of the runner is left."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    runner = Runner(jobs, database_url, settings())
    runner.stop()
    for _ in range(2):
        with engine.begin() as connection:
            job = add(connection, "work")
        runner.start()
        with pytest.raises(RuntimeError, match="started already"):
            runner.start()
        wait_for_row(engine, job, lambda it: it.status == "done")
        assert (
            1 <= _connections(engine) <= 6
        )  # five loops, and for a moment the other end of what is listened to
        stoppers = [threading.Thread(target=runner.stop) for _ in range(3)]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join(PATIENCE)
        runner.stop()
        assert _ours() == []
        wait_until(lambda: _connections(engine) == 0)


def test_a_refused_second_run_leaves_the_first_alone(engine: Engine, database_url: str) -> None:
    """run() on a runner that is started raises, and the jobs go on."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    runner = Runner(jobs, database_url, settings())
    with runner:
        with pytest.raises(RuntimeError, match="started already"):
            runner.run(handle_signals=False)
        with engine.begin() as connection:
            job = add(connection, "work")
        wait_for_row(engine, job, lambda it: it.status == "done")


def _in_a_thread(act: Callable[[], Any]) -> Any:
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(act())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    return answers[0]


def test_embedded_it_leaves_the_hosts_signals_alone(engine: Engine, database_url: str) -> None:
    """Outside the main thread too, where installing handlers is impossible; and run() gives them back."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    theirs = lambda _number, _frame: None  # noqa: E731 - compared by identity
    before = signal.signal(signal.SIGTERM, theirs)
    try:
        with engine.begin() as connection:
            job = add(connection, "work")

        def embedded() -> object:
            with Runner(jobs, database_url, settings()):
                wait_for_row(engine, job, lambda it: it.status == "done")
                return signal.getsignal(signal.SIGTERM)

        assert _in_a_thread(embedded) is theirs
        assert Runner(jobs, database_url, settings(burst=True)).run() == 0
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_outside_the_main_thread_are_refused_before_the_start(database_url: str) -> None:
    """An error must not leave a runner behind that nobody can stop."""
    jobs, _ = _gated()
    runner = Runner(jobs, database_url, settings())
    assert isinstance(_in_a_thread(runner.run), ValueError)
    assert _ours() == []


def test_a_stop_during_the_start_is_heard(database_url: str) -> None:
    """A signal that comes while the runner connects ends it as soon as it has begun."""
    jobs, _ = _gated()

    def subscriber(event: object) -> None:
        if isinstance(event, RunnerStarted):
            signal.raise_signal(signal.SIGTERM)

    assert Runner(jobs, database_url, settings(), subscribers=[subscriber]).run() == 0
    assert _ours() == []


def test_a_loop_that_dies_ends_the_runner(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never alive and idle: a fault in any loop is told and gives exit code 1."""
    jobs, _ = _gated()

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a fault in the step")

    monkeypatch.setattr("sa_jobqueue.runner.leases.step", broken)
    recorder = Recorder()
    assert Runner(jobs, database_url, settings(), subscribers=[recorder]).run(handle_signals=False) == 1
    (failed,) = [event for event in recorder.events if getattr(event, "retry_in", 0) is None]
    assert failed.loop == "leases"
    assert "a fault in the step" in failed.error
    assert _ours() == []


def test_a_loop_that_dies_while_the_runner_ends_is_told(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace period may be long, and leases that are renewed no more are others' meanwhile: no clean end."""
    jobs, gate = _gated()
    whole = leases.step

    def broken(state: Any, events: Any, now: float) -> Any:
        if recorder.of(RunnerStopping):
            raise ZeroDivisionError("a fault in the step")
        return whole(state, events, now)

    monkeypatch.setattr("sa_jobqueue.runner.leases.step", broken)
    with engine.begin() as connection:
        add(connection, "work")
    recorder = Recorder()
    with Runner(jobs, database_url, settings(), subscribers=[recorder]) as runner:
        recorder.wait_for(JobStarted)
        runner.request_stop()
        wait_until(lambda: "sa_jobqueue-leases" not in _ours())
        gate.set()
    (failed,) = recorder.of(LoopFailed)
    assert (failed.loop, failed.retry_in) == ("leases", None)
    assert [stopped.exit_code for stopped in recorder.of(RunnerStopped)] == [1]


def test_an_embedded_runner_that_loses_a_loop_ends_by_itself(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for its end, and it must not go on claiming all the same; it can be started again."""
    jobs, _ = _gated()
    whole = leases.step

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a fault in the step")

    monkeypatch.setattr("sa_jobqueue.runner.leases.step", broken)
    recorder = Recorder()
    runner = Runner(jobs, database_url, settings(), subscribers=[recorder])
    runner.start()
    assert [stopped.exit_code for stopped in recorder.wait_for(RunnerStopped)] == [1]
    wait_until(lambda: _ours() == [], what="no thread of it")
    monkeypatch.setattr("sa_jobqueue.runner.leases.step", whole)
    with runner:
        recorder.wait_for(RunnerStarted, count=2)


def test_an_embedded_burst_ends_by_itself(engine: Engine, database_url: str) -> None:
    """Once nothing is due it stops as if asked to; a stop afterwards is harmless."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    with engine.begin() as connection:
        job = add(connection, "work")
    recorder = Recorder()
    runner = Runner(jobs, database_url, settings(burst=True), subscribers=[recorder])
    runner.start()
    assert [stopped.exit_code for stopped in recorder.wait_for(RunnerStopped)] == [0]
    runner.stop()
    assert row(engine, job).status == "done"
    assert _ours() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_jobs_end(engine: Engine, database_url: str, number: signal.Signals) -> None:
    """Exit code 0, the running job done, the waiting one not begun."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job, waiting = (add(connection, "nap", '{"seconds": 0.5}') for _ in range(2))
    with process(APP, database_url, "--queues", "default:1") as runner:
        wait_until(lambda: ledger(engine), what="the first run")
        runner.send(number)
        assert runner.wait() == 0
    assert [row(engine, one).status for one in (job, waiting)] == ["done", "ready"]
    assert row(engine, waiting).attempts == row(engine, waiting).returned


def test_past_the_grace_a_process_ends_with_code_7(engine: Engine, database_url: str) -> None:
    """Not after the handler's minute: the job is handed back, and the process does not wait for its thread."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "nap", '{"seconds": 60}')
    with process(APP, database_url, "--grace", "300ms", "--lease", "5m") as runner:
        wait_until(lambda: ledger(engine), what="the run")
        runner.send(signal.SIGTERM)
        assert runner.wait() == 7
    ready = row(engine, job)
    assert (ready.status, ready.attempts, ready.returned) == ("ready", 1, 0)
    assert "shut down" in ready.last_error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_at_once(engine: Engine, database_url: str, number: signal.Signals) -> None:
    """Exit code 128 + n, with the grace period far from over."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        add(connection, "nap", '{"seconds": 60}')
    with process(APP, database_url, "--grace", "60s") as runner:
        wait_until(lambda: ledger(engine), what="the run")
        runner.send(signal.SIGTERM)
        wait_until(lambda: "stops (SIGTERM)" in runner.text, what="the first signal to be heard")
        assert runner.insist(number) == 128 + number


def test_a_signal_that_another_thread_gets_is_heard(engine: Engine, database_url: str) -> None:
    """As the kernel has it when it was sent to a process that is stopped, and then goes on: any thread may get it."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
    for _ in range(3):
        with engine.begin() as connection:
            job = add(connection, "quick")
        with process(APP, database_url) as runner:
            wait_for_row(engine, job, lambda it: it.status == "done")
            runner.send(signal.SIGSTOP)
            os.waitid(os.P_PID, runner.pid, os.WSTOPPED | os.WNOWAIT)
            runner.send(signal.SIGTERM)
            runner.send(signal.SIGCONT)
            assert runner.wait() == 0
