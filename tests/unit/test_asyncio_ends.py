"""How handlers on an event loop end: whatever they raise, and however they are interrupted, the loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.states import Verb
from tests.support.executions import execution
from tests.support.loop_floor import Gate, LoopFloor, loop_floor, nothing
from tests.support.waiting import PATIENCE, wait_until


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
    gate = Gate()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    with loop_floor() as floor:
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

    with loop_floor() as floor:
        assert {one.settlement.verb for one in floor.carry_out(parent)} == {Verb.RETRY}
        assert {one.settlement.verb for one in floor.carry_out(forgetful)} == {Verb.COMPLETE}
        floor.carry_out(nothing)
    assert floor.faults == []


def test_a_handler_that_stops_the_loop_stops_nobody() -> None:
    """The loop is not the handler's to stop."""

    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)

    with loop_floor() as floor:
        floor.carry_out(stop, stop)
    assert floor.verbs() == [Verb.COMPLETE] * 2


def test_a_loop_that_is_broken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never alive and idle: a loop that can't look at its sockets can't go on, and the runner must end."""

    def broken(*_: Any) -> Any:
        raise OSError("bad file descriptor")

    async def break_it() -> None:
        monkeypatch.setattr(asyncio.get_running_loop()._selector, "select", broken)  # type: ignore[attr-defined]

    floor = LoopFloor({"default": 1})
    floor.executor.start()
    floor.executor.submit([execution(break_it)])
    wait_until(lambda: floor.faults)
    floor.executor.stop()
    assert floor.executor.join(PATIENCE)


def test_a_loop_on_which_nothing_can_begin_is_told() -> None:
    """A handler may set a task factory, and it is the loop's for all: its failure would leave jobs that never end."""

    def broken(_loop: Any, coroutine: Any, **_: Any) -> Any:
        coroutine.close()
        raise LookupError("no task for you")

    async def break_it() -> None:
        asyncio.get_running_loop().set_task_factory(broken)

    with loop_floor() as floor:
        floor.carry_out(break_it)
        floor.executor.submit([execution(nothing)])
        wait_until(lambda: floor.faults)
    assert [type(fault) for fault in floor.faults] == [LookupError]


def test_a_watch_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would miss the warnings that it doesn't give any more."""

    def broken(*_: Any, **__: Any) -> Any:
        raise SystemExit("no look for you")

    monkeypatch.setattr("sa_jobqueue.runner.executors.loop_watch.look", broken)
    with loop_floor() as floor:
        wait_until(lambda: floor.faults)
    assert [type(fault) for fault in floor.faults] == [SystemExit]


def test_whoever_cancels_every_task_it_finds_costs_no_outcome() -> None:
    """A task that is cancelled before its first step has no outcome of its own: its job is given back."""

    async def cancel_all() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with loop_floor(default=10) as floor:
        outcomes = floor.carry_out(cancel_all, *[nothing] * 5)
    assert sorted(one.settlement.verb for one in outcomes) == [Verb.COMPLETE] + [Verb.RELEASE] * 5


def test_a_handler_that_cancels_itself_and_returns_is_done() -> None:
    """What counts is how the handler ended."""

    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    with loop_floor() as floor:
        assert [one.settlement.verb for one in floor.carry_out(cancel)] == [Verb.COMPLETE]


def _interrupted(cause: Interruption, handler: Callable[..., Any]) -> Finished:
    with loop_floor() as floor:
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


@pytest.mark.parametrize("handler", [nothing, lambda: None], ids=["async", "def"])
def test_what_is_interrupted_in_line_never_begins(handler: Callable[..., Any]) -> None:
    """It is given back when its turn comes, and its attempt counts for nothing."""
    gate = Gate()
    with loop_floor(default=1) as floor:
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

    with loop_floor() as floor:
        one = execution(stubborn)
        floor.executor.submit([one])
        wait_until(lambda: one._cancel is not None)
        floor.executor.interrupt(one, Interruption.CANCEL_REQUESTED)
        assert swallowed.wait(PATIENCE)
        floor.executor.interrupt(one, Interruption.SHUTDOWN)
        wait_until(lambda: floor.outcomes)
    assert one.interruption is Interruption.CANCEL_REQUESTED
    assert floor.verbs() == [Verb.ABORT]


@pytest.mark.parametrize("nested", [False, True], ids=["group", "timeout in a group"])
def test_an_interruption_reaches_the_tasks_of_a_group(nested: bool) -> None:
    """Their errors on the way out hide the cancellation that they came of; it counts all the same."""
    gate = Gate()

    async def child() -> None:
        try:
            if nested:
                async with asyncio.timeout(60):
                    await gate.pass_through()
            await gate.pass_through()
        finally:
            raise ValueError("while cleaning up")

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(gate.pass_through())

    with loop_floor() as floor:
        one = execution(parent)
        floor.executor.submit([one])
        wait_until(lambda: gate.waiting == 2)
        floor.executor.interrupt(one, Interruption.SHUTDOWN)
        wait_until(lambda: floor.outcomes)
    (outcome,) = floor.outcomes
    assert outcome.cause is Interruption.SHUTDOWN
    assert (outcome.settlement.verb, outcome.settlement.delay) == (Verb.RETRY, timedelta(0))
    assert "ValueError: while cleaning up" in (outcome.settlement.error or "")


def test_a_timeout_of_the_handlers_own_is_no_interruption() -> None:
    """Neither is it swallowed by one: who survives our cancellation meets its own timeout as ever."""
    gate, seen = Gate(), list[str]()

    async def stubborn() -> None:
        try:
            async with asyncio.timeout(60):
                await gate.pass_through()
        except asyncio.CancelledError:
            seen.append("ours")
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            seen.append("its own")

    async def slow() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with loop_floor() as floor:
        (failed,) = floor.carry_out(slow)
        assert (failed.cause, failed.settlement.verb) == (None, Verb.RETRY)
        one = execution(stubborn)
        floor.executor.submit([one])
        wait_until(lambda: gate.waiting == 1)
        floor.executor.interrupt(one, Interruption.CANCEL_REQUESTED)
        wait_until(lambda: len(floor.outcomes) == 2)
    assert seen == ["ours", "its own"]
    assert floor.outcomes[-1].settlement.verb is Verb.COMPLETE
