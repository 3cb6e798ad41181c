"""A blocked loop is noticed, with the name of who blocks it; one that merely waits or is busy is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sa_jobqueue.runner.executors.loop_watch import LOOK_INTERVAL, Watching, look
from tests.support.executions import execution
from tests.support.loop_floor import loop_floor
from tests.support.waiting import wait_until


async def _wait() -> None:
    await asyncio.sleep(0.01)


def test_the_handler_that_blocks_is_named_and_those_that_wait_are_not() -> None:
    """Once for each time, with the place where it is; also when the loop was blocked before."""
    gates = [threading.Event(), threading.Event()]

    async def block_twice() -> None:
        for gate in gates:
            assert gate.wait(30)
            await asyncio.sleep(0)

    with loop_floor(default=10) as watched:
        blocking = execution(block_twice)
        watched.executor.submit([*(execution(_wait) for _ in range(5)), blocking])
        for number, gate in enumerate(gates, start=1):
            wait_until(lambda number=number: len(watched.blockages) == number)
            gate.set()
        wait_until(lambda: len(watched.outcomes) == 6)
    assert [one.execution for one in watched.blockages] == [blocking] * 2
    for one in watched.blockages:
        assert timedelta(seconds=1) < one.duration < timedelta(seconds=10)
        assert "wait" in one.location


def _blocks_in_a_task(gate: threading.Event) -> Callable[[], Any]:
    async def block() -> None:
        assert gate.wait(30)

    async def parent() -> None:
        await asyncio.create_task(block())

    return parent


def _blocks_in_a_callback(gate: threading.Event) -> Callable[[], Any]:
    async def parent() -> None:
        asyncio.get_running_loop().call_later(0.01, gate.wait, 30)
        await asyncio.sleep(0.02)

    return parent


def test_what_a_handler_has_made_blocks_in_its_name() -> None:
    """Its own tasks and timers run in its context, and a job's name is what helps."""
    for blocks in (_blocks_in_a_task, _blocks_in_a_callback):
        gate = threading.Event()
        with loop_floor(default=10) as watched:
            blocking = execution(blocks(gate))
            watched.executor.submit([blocking, execution(_wait)])
            wait_until(lambda watched=watched: watched.blockages)
            gate.set()
        assert [one.execution for one in watched.blockages] == [blocking]


# Two callbacks: only whether they are the same counts.
ONE, OTHER = object(), object()


def _looks(*looks: tuple[Any, bool, float]) -> list[bool]:
    state, answers = Watching(), []
    for callback, turned, elapsed in looks:
        state, blocked = look(state, callback, turned=turned, elapsed=elapsed)
        answers.append(blocked)
    return answers


def test_one_callback_for_more_than_a_second_is_told_once() -> None:
    """Counted from the first look that found it."""
    looks = [(ONE, False, LOOK_INTERVAL)] * 10
    assert _looks(*looks) == [False] * 5 + [True] + [False] * 4


def test_a_loop_that_turns_or_waits_or_changes_is_not_blocked() -> None:
    """Many short steps make a loop busy; each is another callback, or the loop has turned in between."""
    steps = [(ONE, False, LOOK_INTERVAL), (OTHER, False, LOOK_INTERVAL)] * 10
    turns = [(ONE, True, LOOK_INTERVAL)] * 20
    waits = [(ONE, False, LOOK_INTERVAL), (None, False, LOOK_INTERVAL)] * 10
    for looks in (steps, turns, waits):
        assert not any(_looks(*looks))


def test_a_process_that_was_stopped_blames_nobody() -> None:
    """A look that comes an hour late says nothing about what the loop did meanwhile."""
    assert (
        _looks((ONE, False, 0.25), (ONE, False, 0.25), (ONE, False, 3600.0), (ONE, True, 0.25)) == [False] * 4
    )
