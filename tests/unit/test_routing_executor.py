"""Several executors as one: each queue's jobs go to its own, and stopping and joining reach all."""

from __future__ import annotations

from collections.abc import Sequence

from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import QueueSettings, RunnerSettings
from sa_jobqueue.runner.executors.choice import chosen_executors
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.runner.executors.routing import RoutingExecutor
from tests.support.executions import execution


class _Fake:
    """An executor that only remembers."""

    def __init__(self, *, ends: bool = True) -> None:
        self.calls: list[str] = []
        self.line: list[Execution] = []
        self.interrupted: list[Execution] = []
        self._ends = ends

    def start(self) -> None:
        self.calls.append("start")

    def submit(self, executions: Sequence[Execution]) -> None:
        self.calls.append("submit")
        self.line += executions

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        taken = [one for one in self.line if one.job.queue in queues]
        self.line = [one for one in self.line if one not in taken]
        return taken

    def waiting(self, queue: str) -> int:
        return sum(one.job.queue == queue for one in self.line)

    def interrupt(self, execution: Execution, cause: Interruption) -> bool:
        self.interrupted.append(execution)
        return self._ends

    def stop(self) -> None:
        self.calls.append("stop")

    def join(self, timeout: float) -> bool:
        self.calls.append("join")
        return self._ends


def test_each_queue_has_its_executor() -> None:
    """One call for each executor and batch, in order; each started, stopped and joined once."""
    one, other = _Fake(), _Fake(ends=False)
    executor = RoutingExecutor({"a": one, "b": other, "c": one})
    executor.start()
    batch = [execution(queue=queue) for queue in ("a", "b", "c", "b", "a")]
    executor.submit(batch)
    assert one.line == [batch[0], batch[2], batch[4]]
    assert other.line == [batch[1], batch[3]]
    assert executor.take_back(["b", "c"]) == [batch[1], batch[3], batch[2]]
    assert executor.interrupt(batch[0], Interruption.SHUTDOWN)
    assert not executor.interrupt(batch[1], Interruption.SHUTDOWN)
    assert (one.interrupted, other.interrupted) == ([batch[0]], [batch[1]])
    executor.stop()
    assert not executor.join(1)
    assert one.calls == other.calls == ["start", "submit", "stop", "join"]


def test_a_queue_that_was_given_none_gets_the_executor_of_its_handlers() -> None:
    """asyncio where an async handler is registered for the queue, threads else; what was given counts."""
    jobs = Registry()

    @jobs.handler("a", queue="ai")
    async def asynchronous() -> None: ...

    jobs.handler("b", queue="ai")(lambda: None)
    jobs.handler("c", queue="mail")(lambda: None)
    left = RunnerSettings(queues={"ai": 4, "mail": QueueSettings(4), "other": 1})
    assert chosen_executors(left, jobs) == {"ai": "asyncio", "mail": "thread", "other": "thread"}
    given = {"ai": QueueSettings(4, executor="thread"), "mail": QueueSettings(4, executor="asyncio")}
    assert chosen_executors(RunnerSettings(queues=given), jobs) == {"ai": "thread", "mail": "asyncio"}
