"""The executor of coroutines: bounded, interruptible, and nothing that a handler does ends its loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sa_jobqueue.events import Subscribers
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.executors.event_loop import AsyncioExecutor
from sa_jobqueue.runner.executors.loop_watch import Blockage
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.states import Verb
from tests.support.executions import execution
from tests.support.waiting import wait_until


class _Floor:
    """An executor whose outcomes are kept."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.outcomes: list[Finished] = []
        self.blockages: list[Blockage] = []
        self.faults: list[BaseException] = []
        attempts = Attempts(Subscribers(), on_finished=self.outcomes.append)
        self.executor = AsyncioExecutor(
            limits,
            carry_out=attempts.carry_out,
            carry_out_async=attempts.carry_out_async,
            let_go=attempts.let_go,
            on_blocked=self.blockages.append,
            on_fault=self.faults.append,
        )

    def verbs(self) -> list[Verb]:
        return [one.settlement.verb for one in list(self.outcomes)]

    def carry_out(self, *functions: Callable[..., Any]) -> list[Finished]:
        """All of these at once; their outcomes, in the order in which they ended."""
        already = len(self.outcomes)
        self.executor.submit([execution(function) for function in functions])
        wait_until(lambda: len(self.outcomes) == already + len(functions))
        return self.outcomes[already:]


@contextmanager
def _floor(**limits: int) -> Iterator[_Floor]:
    floor = _Floor(limits or {"default": 2})
    floor.executor.start()
    try:
        yield floor
    finally:
        floor.executor.stop()
        assert floor.executor.join(10)


class _Gate:
    """What async handlers wait for, opened from any thread."""

    def __init__(self) -> None:
        self.waiting = 0
        self.opened = False

    async def pass_through(self) -> None:
        self.waiting += 1
        try:
            while not self.opened:
                await asyncio.sleep(0.005)
        finally:
            self.waiting -= 1


async def _nothing() -> None: ...


def test_each_queue_runs_as_many_as_its_limit() -> None:
    """No more at once, of either colour, and another queue's handlers don't count."""
    gates = {"a": _Gate(), "b": _Gate()}
    opened = threading.Event()
    in_threads: list[int] = []

    def plain() -> None:
        in_threads.append(1)
        assert opened.wait(10)
        in_threads.pop()

    with _floor(a=2, b=100) as floor:
        floor.executor.submit(
            [execution(gates[queue].pass_through, queue=queue) for queue in ("a", "b") for _ in range(150)]
        )
        wait_until(lambda: (gates["a"].waiting, gates["b"].waiting) == (2, 100))
        floor.executor.submit([execution(plain, queue="a") for _ in range(6)])
        gates["b"].opened = True
        wait_until(lambda: len(floor.outcomes) == 150)
        assert (gates["a"].waiting, in_threads) == (2, [])
        gates["a"].opened = True
        wait_until(lambda: len(in_threads) == 2)
        opened.set()
        wait_until(lambda: len(floor.outcomes) == 306)
    assert set(floor.verbs()) == {Verb.COMPLETE}


def test_a_plain_handler_runs_in_a_thread_and_blocks_nobody() -> None:
    """A def handler in a queue of this executor may block for as long as it likes."""
    gate = threading.Event()
    with _floor(default=2) as floor:
        blocking = execution(lambda: gate.wait(10))
        floor.executor.submit([blocking])
        floor.carry_out(_nothing)
        assert [one.execution for one in floor.outcomes] != [blocking]
        gate.set()
        wait_until(lambda: len(floor.outcomes) == 2)


def test_what_waits_is_taken_back_and_never_begins() -> None:
    """Each execution is either begun or given back, never both, and only those of the queues asked for."""
    gate, begun = _Gate(), []

    async def begin() -> None:
        begun.append(1)

    with _floor(a=1, b=1) as floor:
        floor.executor.submit([execution(gate.pass_through, queue="a")])
        wait_until(lambda: gate.waiting)
        rest = [execution(begin, queue="a") for _ in range(50)]
        floor.executor.submit(rest)
        assert floor.executor.take_back(["b"]) == []
        assert floor.executor.take_back(["a"]) == rest
        gate.opened = True
        wait_until(lambda: floor.outcomes)
    assert (begun, floor.verbs()) == ([], [Verb.COMPLETE])


def test_a_stop_begins_nothing_more_and_lets_what_waits_go() -> None:
    """What runs ends as it would; what waited is released, and what comes later can be taken back."""
    gate, begun = _Gate(), []

    async def begin() -> None:
        begun.append(1)

    with _floor(default=2) as floor:
        floor.executor.submit([execution(gate.pass_through) for _ in range(2)])
        wait_until(lambda: gate.waiting == 2)
        floor.executor.submit([execution(begin) for _ in range(10)])
        floor.executor.stop()
        wait_until(lambda: floor.verbs() == [Verb.RELEASE] * 10)
        assert not floor.executor.join(0)
        gate.opened = True
        assert floor.executor.join(10)
        late = [execution(begin) for _ in range(3)]
        floor.executor.submit(late)
        assert floor.executor.take_back(["default"]) == late
    assert begun == []
    assert floor.verbs() == [Verb.RELEASE] * 10 + [Verb.COMPLETE] * 2


def test_submitting_taking_back_and_stopping_at_once_loses_nothing() -> None:
    """However it is raced: each execution has one outcome or was taken back, and no thread is left."""
    for turn in range(30):
        floor = _Floor({"default": 4})
        floor.executor.start()
        back: list[Execution] = []
        ready = threading.Barrier(3)

        def submit(floor: _Floor = floor, ready: threading.Barrier = ready, turn: int = turn) -> None:
            ready.wait()
            for number in range(20):
                floor.executor.submit([execution(_nothing if (number + turn) % 2 else lambda: None)])

        def take(floor: _Floor = floor, ready: threading.Barrier = ready, back: Any = back) -> None:
            ready.wait()
            for _ in range(5):
                back.extend(floor.executor.take_back(["default"]))

        threads = [threading.Thread(target=target) for target in (submit, take)]
        for thread in threads:
            thread.start()
        ready.wait()
        floor.executor.stop()
        for thread in threads:
            thread.join()
        assert floor.executor.join(10)
        back += floor.executor.take_back(["default"])
        assert len(back) + len(floor.outcomes) == 20


def test_an_executor_that_gets_no_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is claimed, and whatever it had begun is undone."""
    floor, start = _Floor({"default": 1}), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "sa_jobqueue-asyncio":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            floor.executor.start()
    floor.executor.stop()
    assert floor.executor.join(10)


class _BareError(BaseException):
    pass


ERRORS = [
    ValueError(),
    SystemExit(1),
    KeyboardInterrupt(),
    GeneratorExit(),
    _BareError(),
    asyncio.CancelledError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_handler_raises_the_loop_goes_on(error: BaseException) -> None:
    """It is that job's failure, under its own name, and its neighbour never notices."""
    gate = _Gate()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    with _floor() as floor:
        neighbour = execution(gate.pass_through)
        floor.executor.submit([neighbour])
        failed, again = floor.carry_out(fail)[0], floor.carry_out(fail)[0]
        for one in (failed, again):
            assert one.settlement.verb is Verb.RETRY
            assert type(error).__qualname__ in (one.settlement.error or "")
        gate.opened = True
        wait_until(lambda: len(floor.outcomes) == 3)
    assert (floor.outcomes[-1].execution, floor.verbs()[-1]) == (neighbour, Verb.COMPLETE)


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), _BareError()], ids=lambda e: type(e).__name__
)
def test_what_a_task_of_a_handler_raises_ends_no_loop(error: BaseException) -> None:
    """asyncio lets SystemExit of any task out of the loop; here the loop turns on."""

    async def fail() -> None:
        raise error

    async def parent() -> None:
        await asyncio.create_task(fail())

    async def forgetful() -> None:
        child = asyncio.create_task(fail())
        await asyncio.wait([child])
        child.exception()

    with _floor() as floor:
        assert {one.settlement.verb for one in floor.carry_out(parent)} == {Verb.RETRY}
        assert {one.settlement.verb for one in floor.carry_out(forgetful)} == {Verb.COMPLETE}
        floor.carry_out(_nothing)
    assert floor.faults == []


def test_a_handler_that_stops_the_loop_stops_nobody() -> None:
    """The loop is not the handler's to stop."""

    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)

    with _floor() as floor:
        floor.carry_out(stop, stop)
    assert floor.verbs() == [Verb.COMPLETE] * 2


def test_a_loop_that_is_broken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never alive and idle: a loop that can't look at its sockets can't go on, and the runner must end."""

    def broken(*_: Any) -> Any:
        raise OSError("bad file descriptor")

    async def break_it() -> None:
        monkeypatch.setattr(asyncio.get_running_loop()._selector, "select", broken)  # type: ignore[attr-defined]

    floor = _Floor({"default": 1})
    floor.executor.start()
    floor.executor.submit([execution(break_it)])
    wait_until(lambda: floor.faults)
    floor.executor.stop()
    assert floor.executor.join(10)


def test_whoever_cancels_every_task_it_finds_costs_no_outcome() -> None:
    """A task that is cancelled before its first step has no outcome of its own: its job is given back."""

    async def cancel_all() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with _floor(default=10) as floor:
        outcomes = floor.carry_out(cancel_all, *[_nothing] * 5)
    assert sorted(one.settlement.verb for one in outcomes) == [Verb.COMPLETE] + [Verb.RELEASE] * 5


def test_a_handler_that_cancels_itself_and_returns_is_done() -> None:
    """What counts is how the handler ended."""

    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    with _floor() as floor:
        assert [one.settlement.verb for one in floor.carry_out(cancel)] == [Verb.COMPLETE]


def _interrupted(cause: Interruption, handler: Callable[..., Any]) -> Finished:
    with _floor() as floor:
        one = execution(handler)
        floor.executor.submit([one])
        wait_until(lambda: one._cancel is not None)
        assert floor.executor.interrupt(one, cause)
        wait_until(lambda: floor.outcomes)
        assert not floor.executor.interrupt(one, Interruption.SHUTDOWN)
    (outcome,) = floor.outcomes
    assert outcome.execution.interruption is cause
    return outcome


async def _hang() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("cause", "verb"),
    [
        (Interruption.TIMEOUT, Verb.RETRY),
        (Interruption.CANCEL_REQUESTED, Verb.ABORT),
        (Interruption.SHUTDOWN, Verb.RETRY),
        (Interruption.LEASE_LOST, Verb.RETRY),
    ],
)
def test_an_interruption_cancels_the_task(cause: Interruption, verb: Verb) -> None:
    """The handler ends where it waits, and the verdict is the cause's."""
    assert _interrupted(cause, _hang).settlement.verb is verb


def test_a_handler_that_finishes_all_the_same_has_the_word() -> None:
    """One that catches the cancellation and returns has done its job."""

    async def finish() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)

    assert _interrupted(Interruption.CANCEL_REQUESTED, finish).settlement.verb is Verb.COMPLETE


@pytest.mark.parametrize("handler", [_nothing, lambda: None], ids=["async", "def"])
def test_what_is_interrupted_in_line_never_begins(handler: Callable[..., Any]) -> None:
    """It is given back when its turn comes, and its attempt counts for nothing."""
    gate = _Gate()
    with _floor(default=1) as floor:
        first, waiting = execution(gate.pass_through), execution(handler)
        floor.executor.submit([first, waiting])
        wait_until(lambda: gate.waiting)
        assert not floor.executor.interrupt(waiting, Interruption.CANCEL_REQUESTED)
        gate.opened = True
        wait_until(lambda: len(floor.outcomes) == 2)
    (released,) = [one for one in floor.outcomes if one.execution is waiting]
    assert (released.settlement.verb, released.seconds) == (Verb.RELEASE, None)


def test_a_second_interruption_cancels_again_and_the_first_counts() -> None:
    """A handler that has swallowed one cancellation is cancelled by the next one."""
    swallowed = threading.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.sleep(60)

    with _floor() as floor:
        one = execution(stubborn)
        floor.executor.submit([one])
        wait_until(lambda: one._cancel is not None)
        floor.executor.interrupt(one, Interruption.CANCEL_REQUESTED)
        assert swallowed.wait(10)
        floor.executor.interrupt(one, Interruption.SHUTDOWN)
        wait_until(lambda: floor.outcomes)
    assert one.interruption is Interruption.CANCEL_REQUESTED
    assert floor.verbs() == [Verb.ABORT]


def test_each_job_has_a_context_of_its_own() -> None:
    """What one handler sets no other sees, neither one that starts when it ends nor one of the other colour."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def work() -> None:
        seen.append(variable.get())
        variable.set(1)

    def plain() -> None:
        seen.append(variable.get())
        variable.set(1)

    with _floor(default=1) as floor:
        floor.carry_out(work, work, plain, plain, work)
    assert seen == [0] * 5


def test_what_handlers_leave_on_the_loop_is_ended() -> None:
    """Tasks are cancelled and async generators closed, without a warning, before the thread ends."""
    ended: list[str] = []

    async def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            ended.append("generator")

    kept: list[Any] = []

    async def task() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("task")

    async def leave() -> None:
        kept.append(asyncio.create_task(task()))
        kept.append(endless())
        await anext(kept[-1])

    with _floor() as floor:
        floor.carry_out(leave)
        assert ended == []
    assert sorted(ended) == ["generator", "task"]


class _Payload:
    """Something large in a handler's locals."""


def test_a_failed_handlers_locals_are_let_go_at_once() -> None:
    """The traceback holds them: kept in a cycle they would wait for the garbage collector, open sessions and all."""
    kept: list[weakref.ref[_Payload]] = []

    async def fail() -> None:
        local = _Payload()
        kept.append(weakref.ref(local))
        await asyncio.sleep(0)
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        with _floor() as floor:
            floor.carry_out(fail)
            wait_until(lambda: kept[0]() is None, timeout=2, what="the handler's locals to be gone")
    finally:
        gc.enable()


def test_an_idle_loop_keeps_no_execution_alive() -> None:
    """The last payload of the day must not stay in memory all night."""
    with _floor() as floor:

        async def work() -> None: ...

        kept = weakref.ref(work)
        floor.executor.submit([execution(work)])
        del work
        wait_until(lambda: floor.outcomes)
        floor.outcomes.clear()
        wait_until(lambda: gc.collect() >= 0 and kept() is None, timeout=2, what="the execution to be gone")
