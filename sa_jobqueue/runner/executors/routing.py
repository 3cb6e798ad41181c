"""One executor for the runner: each queue's jobs go to the executor that its queue was given."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_jobqueue.runner.executors.protocol import Execution, Executor, Interruption


class RoutingExecutor:
    """Several executors as one; `by_queue` names the executor of each queue."""

    def __init__(self, by_queue: Mapping[str, Executor]) -> None:
        self._by_queue = by_queue
        self._executors = tuple(dict.fromkeys(by_queue.values()))

    def start(self) -> None:
        for executor in self._executors:
            executor.start()

    def submit(self, executions: Sequence[Execution]) -> None:
        if len(self._executors) == 1:
            self._executors[0].submit(executions)
            return
        parts: defaultdict[Executor, list[Execution]] = defaultdict(list)
        for execution in executions:
            parts[self._by_queue[execution.job.queue]].append(execution)
        for executor, part in parts.items():
            executor.submit(part)

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        return [execution for queue in queues for execution in self._by_queue[queue].take_back([queue])]

    def waiting(self, queue: str) -> int:
        return self._by_queue[queue].waiting(queue)

    def interrupt(self, execution: Execution, cause: Interruption) -> bool:
        return self._by_queue[execution.job.queue].interrupt(execution, cause)

    def stop(self) -> None:
        for executor in self._executors:
            executor.stop()

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        ended = [executor.join(deadline - time.monotonic()) for executor in self._executors]
        return all(ended)
