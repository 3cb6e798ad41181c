"""The executor of coroutines with its outcomes kept, and handlers for it to carry out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sa_jobqueue.events import Subscribers
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.executors.event_loop import AsyncioExecutor
from sa_jobqueue.runner.executors.loop_watch import Blockage
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.states import Verb
from tests.support.executions import execution
from tests.support.waiting import wait_until


class LoopFloor:
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
def loop_floor(**limits: int) -> Iterator[LoopFloor]:
    """One that is started, with these limits of its queues; at the end nothing of it may be left."""
    floor = LoopFloor(limits or {"default": 2})
    floor.executor.start()
    try:
        yield floor
    finally:
        floor.executor.stop()
        assert floor.executor.join(10)


class Gate:
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


async def nothing() -> None: ...
