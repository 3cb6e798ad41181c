"""`stop()` and `start()` called by whoever the runner itself has called: signal handlers, subscribers, handlers.

The end of a runner is one thread's work. Who interrupts that thread, or is called by it, must not wait for it.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from sa_jobqueue.events import JobSettled, RunnerStarted, RunnerStopped, RunnerStopping
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner
from tests.support.runners import ROOT, Recorder, add, settings, wait_for_row
from tests.support.waiting import wait_until

pytestmark = pytest.mark.once


def _jobs() -> Registry:
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    return jobs


def _ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sa_jobqueue")]


def _ends(act: Callable[[], Any]) -> Any:
    """What the call returns, in a thread of its own: one that waits for itself must not hang the tests."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(act()), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for itself"
    return answers[0]


HOST = """
import signal, sys, threading
from tests.runner.test_stop_from_within import _jobs, settings, Runner

def again(event):
    if type(event).__name__ == sys.argv[2]:
        signal.raise_signal(signal.SIGTERM)

runner = Runner(_jobs(), sys.argv[1], settings(), subscribers=[again])
signal.signal(signal.SIGTERM, lambda *_: runner.stop())
if sys.argv[3] == "block":
    with runner:
        pass
else:
    runner.run(handle_signals=False)
print([thread.name for thread in threading.enumerate() if thread.name.startswith("sa_jobqueue")])
"""


@pytest.mark.parametrize("way", ["run", "block"])
@pytest.mark.parametrize("when", ["RunnerStarted", "RunnerStopping"])
def test_a_signal_handler_may_stop_it_at_any_time(database_url: str, when: str, way: str) -> None:
    """Also when it interrupts the thread that starts the runner, or that is just ending it."""
    if way == "run" and when == "RunnerStopping":
        stop = "threading.Timer(1, runner.request_stop).start()\nif"
        source = HOST.replace("if sys.argv[3]", f"{stop} sys.argv[3]")
    else:
        source = HOST
    host = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), database_url, when, way],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (host.stdout, host.returncode) == ("[]\n", 0), host.stderr


@pytest.mark.parametrize("event", [RunnerStarted, RunnerStopping, RunnerStopped])
def test_a_subscriber_that_stops_it_does_not_wait_for_itself(database_url: str, event: type[Any]) -> None:
    """The call returns; the end that it has asked for comes."""
    recorder = Recorder()

    def subscriber(told: object) -> None:
        if isinstance(told, event):
            runner.stop()

    runner = Runner(_jobs(), database_url, settings(burst=True), subscribers=[recorder, subscriber])
    assert _ends(lambda: runner.run(handle_signals=False)) == 0
    assert len(recorder.of(RunnerStopping)) == len(recorder.of(RunnerStopped)) == 1
    _ends(runner.start)
    recorder.wait_for(RunnerStopped, count=2)
    _ends(runner.stop)
    assert _ours() == []


def test_a_subscriber_that_starts_it_again_too_early_is_told(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A runner that is ending can't be started by the thread that ends it."""

    def subscriber(told: object) -> None:
        if isinstance(told, RunnerStopped):
            runner.start()

    runner = Runner(_jobs(), database_url, settings(burst=True), subscribers=[subscriber])
    assert _ends(lambda: runner.run(handle_signals=False)) == 0
    assert "the runner is ending" in caplog.text
    assert _ours() == []


class _AlarmError(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), _AlarmError()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("handle_signals", [False, True])
def test_whatever_the_host_throws_into_its_wait_stops_it(
    engine: Engine, database_url: str, error: BaseException, handle_signals: bool
) -> None:
    """The host's signal handlers may raise, as sys.exit() does: nothing may go on with nobody there to stop it."""

    def throw(_number: int, _frame: object) -> None:
        raise error

    def subscriber(told: object) -> None:
        if isinstance(told, RunnerStarted):
            # Not from here: what a subscriber raises stays here.
            threading.Thread(target=interrupt).start()

    def interrupt() -> None:
        with engine.begin() as connection:
            job = add(connection, "work")
        wait_for_row(engine, job, lambda it: it.status == "done")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, throw)
    recorder = Recorder()
    try:
        runner = Runner(_jobs(), database_url, settings(), subscribers=[recorder, subscriber])
        with pytest.raises(type(error)):
            runner.run(handle_signals=handle_signals)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(recorder.of(RunnerStopped)) == 1
    assert _ours() == []


def test_a_start_that_gets_no_thread_leaves_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when it is only the last one that can't be had."""
    whole = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "sa_jobqueue-end":
            raise RuntimeError("can't start new thread")
        whole(thread)

    recorder = Recorder()
    runner = Runner(_jobs(), database_url, settings(), subscribers=[recorder])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            runner.start()
    assert len(recorder.of(RunnerStopped)) == 1
    assert _ours() == []
    with runner:
        recorder.wait_for(RunnerStarted, count=2)


@pytest.mark.parametrize("entered", [False, True], ids=["serve", "async with"])
@pytest.mark.parametrize("when", [RunnerStarted, JobSettled])
def test_a_host_whose_loop_just_ends_leaves_no_runner(
    engine: Engine, database_url: str, when: type[Any], entered: bool
) -> None:
    """Its coroutine is thrown away while it waits: nobody is left to stop the runner, so it ends by itself."""
    recorder, told = Recorder(), threading.Event()

    def subscriber(event: object) -> None:
        if isinstance(event, when):
            told.set()

    with engine.begin() as connection:
        add(connection, "work")
    runner = Runner(_jobs(), database_url, settings(), subscribers=[recorder, subscriber])

    async def host() -> None:
        coroutine = runner.__aenter__() if entered else runner.serve()
        coroutine.send(None)
        assert await asyncio.to_thread(told.wait, 20)
        coroutine.close()

    asyncio.run(host())
    recorder.wait_for(RunnerStopped)
    wait_until(lambda: _ours() == [])
