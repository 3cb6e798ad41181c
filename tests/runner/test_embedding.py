"""A runner as a guest: in a thread, as a task of a running loop, in the main thread, and on its own by the command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.errors import ConfigurationError, SchemaVersionError
from sa_jobqueue.events import JobSettled, JobStarted, RunnerStarted, RunnerStopped, RunnerStopping
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner, RunnerSettings
from tests.support.forked import Forked
from tests.support.runners import LEDGER, ROOT, Recorder, add, process, row, settings
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.once

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %'"
Left = tuple[set[threading.Thread], set[str], list[Any], int]


def _guest(url: str, **changes: Any) -> tuple[Runner, Recorder]:
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    recorder = Recorder()
    return Runner(jobs, url, settings(**changes), subscribers=[recorder]), recorder


def _add_ten(engine: Engine) -> list[int]:
    with engine.begin() as connection:
        return [add(connection, "work") for _ in range(10)]


def _all_done(engine: Engine, ids: list[int]) -> bool:
    return {(row(engine, job).status, row(engine, job).attempts) for job in ids} == {("done", 1)}


def _footprint(engine: Engine) -> Left:
    """What a runner may leave in its host: threads, child processes, signal handlers, connections."""
    children = {
        child for tasks in Path("/proc/self/task").glob("*/children") for child in tasks.read_text().split()
    }
    with engine.connect() as connection:
        connections = int(connection.execute(text(CONNECTIONS)).scalar_one())
    return set(threading.enumerate()), children, [signal.getsignal(one) for one in SIGNALS], connections


def _stop_for_everybody(runner: Runner) -> None:
    """By the API, twice and from another thread."""
    other = threading.Thread(target=runner.stop)
    other.start()
    runner.stop()
    runner.stop()
    other.join(PATIENCE)
    assert not other.is_alive()


def _in_a_thread(runner: Runner, recorder: Recorder, work: Callable[[], None]) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(runner.run(handle_signals=False)))
    thread.start()
    recorder.wait_for(RunnerStarted)  # a stop before it would find nothing to stop
    work()
    _stop_for_everybody(runner)
    thread.join(PATIENCE)
    assert codes == [0]


def _in_the_main_thread(runner: Runner, recorder: Recorder, work: Callable[[], None]) -> None:
    with runner:
        work()
        _stop_for_everybody(runner)


def _as_a_task(runner: Runner, recorder: Recorder, work: Callable[[], None]) -> None:
    async def host() -> None:
        task = asyncio.create_task(runner.serve())
        await asyncio.to_thread(recorder.wait_for, RunnerStarted)
        await asyncio.to_thread(work)
        await asyncio.to_thread(_stop_for_everybody, runner)
        assert await task == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(host())


def _for_a_block_of_a_task(runner: Runner, recorder: Recorder, work: Callable[[], None]) -> None:
    async def host() -> None:
        async with runner as entered:
            assert entered is runner
            await asyncio.to_thread(work)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(host())


@pytest.mark.parametrize("way", [_in_a_thread, _in_the_main_thread, _as_a_task, _for_a_block_of_a_task])
def test_a_guest_leaves_its_host_as_it_was(
    engine: Engine, database_url: str, way: Callable[[Runner, Recorder, Callable[[], None]], None]
) -> None:
    """Ten jobs, a stop, and the same again: no thread, task, process, connection or signal handler of it is left."""
    before = _footprint(engine)
    runner, recorder = _guest(database_url)
    for _ in range(2):
        ids = _add_ten(engine)
        recorder.events.clear()
        way(runner, recorder, lambda ids=ids: wait_until(lambda: _all_done(engine, ids)))  # type: ignore[misc]
        assert [stopped.exit_code for stopped in recorder.of(RunnerStopped)] == [0]
        wait_until(lambda: _footprint(engine) == before, what=f"{before}")


def test_the_command_does_the_same_work(engine: Engine, database_url: str) -> None:
    """Ten jobs by the runner's own process, which ends cleanly at its first signal."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        ids = [add(connection, "quick") for _ in range(10)]
    with process("tests.apps.ledger:jobs", database_url) as runner:
        wait_until(lambda: _all_done(engine, ids))
        runner.send(signal.SIGTERM)
        assert runner.wait() == 0


@pytest.mark.parametrize("way", ["thread", "task", "main"])
def test_a_signal_is_the_hosts(engine: Engine, database_url: str, way: str) -> None:
    """The host's own handler runs and may stop the runner; it is there as before, and a second start works."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        ids = [add(connection, "quick") for _ in range(10)]
    variables = {**os.environ, "SA_JOBQUEUE_DATABASE_URL": database_url}
    host = Forked(["tests.apps.host", way], cwd=ROOT, env=variables, stdout=subprocess.PIPE)
    with host:
        try:
            wait_until(lambda: _all_done(engine, ids))
            host.send_signal(signal.SIGTERM)
            told, _ = host.communicate(timeout=PATIENCE)
        finally:
            host.kill()
    assert host.returncode == 0
    assert json.loads(told) == {"heard": [signal.SIGTERM], "kept": True, "left": []}


class _Signal:
    """An asyncio event that a runner's event sets, from whatever thread."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __call__(self, event: Any) -> None:
        if isinstance(event, self._kind):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        await asyncio.wait_for(self._event.wait(), PATIENCE)


def _run(host: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(host, 60))


def _gated(engine: Engine) -> tuple[Registry, threading.Event, int]:
    jobs, gate = Registry(), threading.Event()
    jobs.handler("work")(lambda: gate.wait(PATIENCE))
    with engine.begin() as connection:
        return jobs, gate, add(connection, "work")


LONG_GRACE = timedelta(minutes=5)


@pytest.mark.parametrize("times", [1, 2])
def test_cancelling_its_task_is_a_clean_stop(engine: Engine, database_url: str, times: int) -> None:
    """It waits for what runs, also when it is cancelled once more, and the loop goes on: it opens the gate itself."""
    jobs, gate, job = _gated(engine)

    async def host() -> None:
        recorder, started, stopping = Recorder(), _Signal(JobStarted), _Signal(RunnerStopping)
        guest = Runner(
            jobs, database_url, settings(grace=LONG_GRACE), subscribers=[recorder, started, stopping]
        )
        task = asyncio.create_task(guest.serve())
        await started.wait()
        task.cancel()
        await stopping.wait()
        if times == 2:
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [stopped.exit_code for stopped in recorder.of(RunnerStopped)] == [0]
        assert [told.cause for told in recorder.of(RunnerStopping)] == ["cancelled"]

    _run(host())
    assert row(engine, job).status == "done"


def test_leaving_the_block_waits_without_stopping_the_loop(engine: Engine, database_url: str) -> None:
    """The running handler gets its grace; another task of the loop opens the gate meanwhile."""
    jobs, gate, job = _gated(engine)

    async def open_gate(stopping: _Signal) -> None:
        await stopping.wait()
        gate.set()

    async def host() -> None:
        started, stopping = _Signal(JobStarted), _Signal(RunnerStopping)
        other = asyncio.create_task(open_gate(stopping))
        async with Runner(jobs, database_url, settings(grace=LONG_GRACE), subscribers=[started, stopping]):
            await started.wait()
        assert other.done()
        await other

    _run(host())
    assert row(engine, job).status == "done"


@pytest.mark.parametrize("entered", [False, True], ids=["serve", "async with"])
def test_a_cancellation_during_the_start_is_heard(database_url: str, entered: bool) -> None:
    """Before there is anything to stop: the start ends first, then all of it, and nothing is left running."""

    async def host() -> None:
        loop = asyncio.get_running_loop()
        runner, recorder = _guest(database_url)
        heard, check = threading.Event(), runner._check_registry

        async def enter() -> None:
            async with runner:
                raise AssertionError("the block was entered")

        task = asyncio.create_task(enter() if entered else runner.serve())

        def checked() -> None:
            async def cancel() -> None:
                task.cancel()
                for _ in range(5):  # turns of the loop, after which the task has heard it
                    await asyncio.sleep(0)
                heard.set()

            asyncio.run_coroutine_threadsafe(cancel(), loop)
            assert heard.wait(PATIENCE)
            check()

        runner._check_registry = checked  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(recorder.of(RunnerStarted)) == len(recorder.of(RunnerStopped)) == 1

    _run(host())


def test_what_keeps_it_from_starting_comes_out(database_url: str, empty_database_url: str) -> None:
    """As of start(): a registry that serves nothing, a database without tables, a runner that is started already."""

    async def enter(runner: Runner) -> None:
        async with runner:
            raise AssertionError("the block was entered")

    async def host() -> None:
        nobody, _ = _guest(database_url, queues={"other": 1})
        homeless, _ = _guest(empty_database_url)
        for start in (nobody.serve, lambda: enter(nobody)):
            with pytest.raises(ConfigurationError, match="no handler on the queues asked for"):
                await start()
        for start in (homeless.serve, lambda: enter(homeless)):
            with pytest.raises(SchemaVersionError):
                await start()
        runner, recorder = _guest(database_url)
        async with runner:
            with pytest.raises(RuntimeError, match="started already"):
                await runner.serve()
            assert recorder.of(RunnerStopped) == []

    _run(host())


def test_a_burst_is_served_to_its_end(engine: Engine, database_url: str) -> None:
    """`serve()` returns by itself, with the exit code."""
    ids = _add_ten(engine)

    async def host() -> None:
        runner, recorder = _guest(database_url, burst=True)
        assert await runner.serve() == 0
        assert len(recorder.of(JobSettled)) == 10

    _run(host())
    assert _all_done(engine, ids)


def test_without_queues_it_serves_what_its_handlers_name(engine: Engine, database_url: str) -> None:
    """As the command does; and a registry without handlers is refused."""
    jobs = Registry()
    runner = Runner(jobs, database_url, RunnerSettings(burst=True))
    with pytest.raises(
        ConfigurationError, match=r"the registry has no handlers: register some, or include\(\)"
    ):
        runner.run(handle_signals=False)
    ran: list[str] = []
    jobs.handler("mail", queue="mail")(lambda: ran.append("mail"))
    jobs.handler("plain")(lambda: ran.append("plain"))
    with engine.begin() as connection:
        add(connection, "mail", queue="mail")
        add(connection, "plain")
    assert runner.run(handle_signals=False) == 0
    assert sorted(ran) == ["mail", "plain"]
    assert runner.settings.limits == {"default": 10, "mail": 10}
