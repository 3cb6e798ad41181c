"""The executor of threads, and the attempts that it carries out: each execution ends in exactly one word."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sa_jobqueue.events import Subscribers
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.executors import threads as threads_module
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.runner.executors.threads import ThreadExecutor
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.states import Verb
from tests.support.executions import execution, race_to_the_stop
from tests.support.waiting import PATIENCE, wait_until


class _Floor:
    """An executor whose outcomes are kept."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.outcomes: list[Finished] = []
        attempts = Attempts(Subscribers(), on_finished=self.outcomes.append)
        self.executor = ThreadExecutor(limits, carry_out=attempts.carry_out, let_go=attempts.let_go)

    def verbs(self) -> list[Verb]:
        return [one.settlement.verb for one in list(self.outcomes)]


@contextmanager
def _floor(**limits: int) -> Iterator[_Floor]:
    floor = _Floor(limits or {"default": 2})
    floor.executor.start()
    try:
        yield floor
    finally:
        floor.executor.stop()
        assert floor.executor.join(PATIENCE)


def test_each_queue_runs_as_many_as_its_limit() -> None:
    """No more at once, and another queue's handlers don't count."""
    gate = threading.Event()
    running = {"a": 0, "b": 0}
    lock = threading.Lock()

    def work(queue: str) -> Callable[[], None]:
        def run() -> None:
            with lock:
                running[queue] += 1
            assert gate.wait(PATIENCE)

        return run

    with _floor(a=1, b=3) as floor:
        floor.executor.submit([execution(work(queue), queue=queue) for queue in ("a", "b") for _ in range(6)])
        wait_until(lambda: running == {"a": 1, "b": 3})
        assert len(threading.enumerate()) >= 5
        gate.set()
        wait_until(lambda: len(floor.outcomes) == 12)
    assert running == {"a": 6, "b": 6}


def test_what_waits_is_taken_back_and_never_begins() -> None:
    """Each execution is either begun or given back, never both, and only those of the queues asked for."""
    gate = threading.Event()
    begun: list[int] = []

    with _floor(a=1, b=1) as floor:
        first = execution(lambda: gate.wait(PATIENCE), queue="a")
        floor.executor.submit([first])
        rest = [execution(lambda: begun.append(1), queue="a") for _ in range(50)]
        floor.executor.submit(rest)
        wait_until(lambda: floor.executor._pools["a"]._waiting.qsize() == 50)
        assert floor.executor.take_back(["b"]) == []
        assert floor.executor.take_back(["a"]) == rest
        gate.set()
        wait_until(lambda: floor.outcomes)
    assert begun == []
    assert [one.execution for one in floor.outcomes] == [first]


def test_a_stop_begins_nothing_more_and_lets_what_waits_go() -> None:
    """What runs ends as it would; what waited is released, also what is submitted after the stop or taken back."""
    gate, running = threading.Event(), threading.Semaphore(0)
    begun: list[int] = []

    def run() -> None:
        running.release()
        assert gate.wait(PATIENCE)

    with _floor(default=2) as floor:
        floor.executor.submit([execution(run) for _ in range(2)])
        assert all(running.acquire(timeout=PATIENCE) for _ in range(2))
        floor.executor.submit([execution(lambda: begun.append(1)) for _ in range(10)])
        floor.executor.stop()
        late = [execution(lambda: begun.append(2)) for _ in range(3)]
        floor.executor.submit(late)
        assert not floor.executor.join(0)
        back = floor.executor.take_back(["default"])
        gate.set()
        assert floor.executor.join(PATIENCE)
    assert begun == []
    released = floor.verbs().count(Verb.RELEASE)
    assert len(back) + released == 13
    assert floor.verbs().count(Verb.COMPLETE) == 2


def test_threads_end_with_a_stop_however_it_is_raced() -> None:
    """Submitting, taking back and stopping at once leaves no thread behind and loses no execution."""
    for _ in range(50):
        floor = _Floor({"default": 4})
        floor.executor.start()
        back = race_to_the_stop(floor.executor, [execution() for _ in range(20)])
        assert floor.executor.join(PATIENCE)
        back += floor.executor.take_back(["default"])
        assert len(back) + len(floor.outcomes) == 20


def test_a_machine_without_threads_slows_down_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that is there does the work of those that could not be started."""
    with _floor(default=8) as floor:

        def refuse(_self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            floor.executor.submit([execution() for _ in range(20)])
        wait_until(lambda: len(floor.outcomes) == 20)
    assert floor.verbs() == [Verb.COMPLETE] * 20


def test_an_executor_that_gets_no_thread_at_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is claimed: jobs must not be held that nobody will ever run."""

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        _Floor({"default": 1}).executor.start()


class _BareError(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [ValueError(), SystemExit(1), KeyboardInterrupt(), GeneratorExit(), _BareError()]
)
def test_whatever_a_handler_raises_its_thread_goes_on(error: BaseException) -> None:
    """It is that job's failure, and the next job runs on the same thread."""
    threads: list[threading.Thread] = []

    def fail() -> None:
        threads.append(threading.current_thread())
        raise error

    with _floor(default=1) as floor:
        floor.executor.submit([execution(fail), execution(fail)])
        wait_until(lambda: len(floor.outcomes) == 2)
    assert floor.verbs() == [Verb.RETRY] * 2
    assert threads[0] is threads[1]


def test_an_exception_thrown_into_a_thread_too_late_ends_no_thread() -> None:
    """Libraries for timeouts throw into the handler's thread, sometimes when the handler is through already."""
    outcomes: list[Execution] = []

    def carry_out(one: Execution) -> None:
        outcomes.append(one)
        raise _BareError  # as if thrown from outside

    executor = ThreadExecutor({"default": 1}, carry_out=carry_out, let_go=carry_out)
    executor.start()
    executor.submit([execution() for _ in range(3)])
    wait_until(lambda: len(outcomes) == 3)
    executor.stop()
    assert executor.join(PATIENCE)


def test_an_exception_thrown_into_a_waiting_thread_costs_no_job() -> None:
    """It is raised when the thread gets its next job, which is carried out all the same, and so is the one after it."""
    done, threads = list[Execution](), set[int]()

    def carry_out(one: Execution) -> None:
        threads.add(threading.get_ident())
        done.append(one)

    executor = ThreadExecutor({"default": 1}, carry_out=carry_out, let_go=carry_out)
    executor.start()
    jobs = [execution() for _ in range(4)]
    executor.submit(jobs[:1])
    for count, job in enumerate(jobs[1:], start=1):
        wait_until(lambda count=count: len(done) == count)
        (thread,) = threads
        wait_until(lambda thread=thread: _waits(thread), what="a thread that waits")
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(_BareError)
        )
        executor.submit([job])
    wait_until(lambda: len(done) == len(jobs))
    assert (done, len(threads)) == (jobs, 1)
    executor.stop()
    assert executor.join(PATIENCE)


def _waits(thread: int) -> bool:
    """The thread is in its own code and nobody else's."""
    return sys._current_frames()[thread].f_code.co_filename == threads_module.__file__


def test_a_verdict_that_fails_is_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt without a word would hold its slot and its lease for ever."""

    def broken(*_: Any, **__: Any) -> Any:
        raise _BareError("no verdict")

    monkeypatch.setattr("sa_jobqueue.runner.attempt.verdict", broken)
    with _floor() as floor:
        floor.executor.submit([execution()])
        wait_until(lambda: floor.outcomes)
    (outcome,) = floor.outcomes
    assert outcome.settlement.verb is Verb.RETRY
    assert outcome.settlement.delay is not None
    assert "no verdict" in (outcome.settlement.error or "")


def test_a_job_whose_lease_was_lost_in_line_is_not_run() -> None:
    """Somebody else has it by now; its slot is freed all the same."""
    ran: list[int] = []
    lost = execution(lambda: ran.append(1))
    lost.context.mark_lost()
    with _floor() as floor:
        floor.executor.submit([lost])
        wait_until(lambda: floor.outcomes)
    (outcome,) = floor.outcomes
    assert (outcome.settlement.verb, outcome.seconds, ran) == (Verb.RELEASE, None, [])


def test_a_job_that_was_cancelled_in_line_is_not_run() -> None:
    """Nobody wants it any more: it is cancelled in its turn, and the jobs behind it run."""
    ran: list[str] = []
    cancelled, behind = (execution(lambda name=name: ran.append(name)) for name in ("cancelled", "behind"))
    cancelled.context.mark_cancel_requested()
    with _floor() as floor:
        floor.executor.submit([cancelled, behind])
        wait_until(lambda: len(floor.outcomes) == 2)
    (outcome,) = [one for one in floor.outcomes if one.execution is cancelled]
    assert (outcome.settlement.verb, outcome.settlement.reason) == (Verb.ABORT, "cancelled")
    assert (outcome.seconds, ran) == (None, ["behind"])


def test_the_time_is_the_handlers_own() -> None:
    """Waiting in line is not part of it."""
    gate = threading.Event()
    with _floor(default=1) as floor:
        floor.executor.submit([execution(lambda: gate.wait(0.2)), execution()])
        wait_until(lambda: len(floor.outcomes) == 2)
    slow, quick = floor.outcomes
    assert slow.seconds is not None
    assert slow.seconds >= 0.2
    assert quick.seconds is not None
    assert quick.seconds < 0.2


def test_an_async_handler_runs_in_a_thread_on_a_loop_of_its_own() -> None:
    """Closed with what the handler has left on it, and the thread goes on."""
    loops: list[asyncio.AbstractEventLoop] = []
    ended: list[bool] = []

    async def leave() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        loops[-1].left = asyncio.create_task(leave())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise SystemExit(1)

    with _floor(default=1) as floor:
        floor.executor.submit([execution(work), execution(fail), execution(work)])
        wait_until(lambda: len(floor.outcomes) == 3)
    assert floor.verbs() == [Verb.COMPLETE, Verb.RETRY, Verb.COMPLETE]
    assert loops[0] is not loops[1]
    assert all(loop.is_closed() for loop in loops)
    assert ended == [True, True]


def test_an_async_handler_in_a_thread_can_be_interrupted() -> None:
    """As on an event loop: its task is cancelled. One that waits in line never begins."""

    async def hang() -> None:
        await asyncio.sleep(60)

    with _floor(default=1) as floor:
        running, waiting = execution(hang), execution(lambda: None)
        floor.executor.submit([running, waiting])
        wait_until(lambda: running._cancel is not None)
        assert not floor.executor.interrupt(waiting, Interruption.CANCEL_REQUESTED)
        assert floor.executor.interrupt(running, Interruption.CANCEL_REQUESTED)
        wait_until(lambda: len(floor.outcomes) == 2)
    assert floor.verbs() == [Verb.ABORT, Verb.RELEASE]


class _Payload:
    """Something large in a handler's locals."""


def test_a_failed_handlers_locals_are_let_go_at_once() -> None:
    """The traceback holds them: kept in a cycle they would wait for the garbage collector, open sessions and all."""
    kept: list[weakref.ref[_Payload]] = []

    def fail() -> None:
        local = _Payload()
        kept.append(weakref.ref(local))
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        with _floor() as floor:
            floor.executor.submit([execution(fail)])
            wait_until(lambda: floor.outcomes)
            wait_until(lambda: kept[0]() is None, what="the handler's locals to be gone")
    finally:
        gc.enable()


def test_an_idle_thread_keeps_no_execution_alive() -> None:
    """The last payload of the day must not stay in memory all night."""
    with _floor() as floor:

        def work() -> None: ...

        kept = weakref.ref(work)
        floor.executor.submit([execution(work)])
        del work
        wait_until(lambda: floor.outcomes)
        floor.outcomes.clear()
        wait_until(lambda: gc.collect() >= 0 and kept() is None, what="the execution to be gone")
