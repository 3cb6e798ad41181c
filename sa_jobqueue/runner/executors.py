"""Where handler code runs: the protocol, and the executor of threads.

An executor takes executions, carries each out once and gives back on request those it has not begun. It knows nothing
of the database; a new kind of executor is one class with these methods.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sa_jobqueue.context import JobContext
    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import ClaimedJob
    from sa_jobqueue.runner.book import Key


class Execution:
    """One claimed job with its handler and the context that the handler is given."""

    __slots__ = ("context", "handler", "job", "key")

    def __init__(self, job: ClaimedJob, handler: Handler[..., ..., Any], context: JobContext) -> None:
        self.job: ClaimedJob = job
        self.handler: Handler[..., ..., Any] = handler
        self.context: JobContext = context
        self.key: Key = (job.id, job.token)


class Executor(Protocol):
    """What the runner asks of an executor."""

    def submit(self, executions: Sequence[Execution]) -> None:
        """Carry these out, each once, in order per queue; returns at once."""

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        """Give back what was submitted for these queues and has not begun; it never will."""
        ...

    def stop(self) -> None:
        """Begin nothing more; what runs goes on. Returns at once."""


class ThreadExecutor:
    """One pool of threads for each queue, as large as the queue's limit, grown as work arrives."""

    def __init__(self, limits: Mapping[str, int], carry_out: Callable[[Execution], None]) -> None:
        self._carry_out = carry_out
        self._pools = {queue: _Pool(queue, limit, self._work) for queue, limit in limits.items()}

    def submit(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._pools[execution.job.queue].put(execution)

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        return [execution for queue in queues for execution in self._pools[queue].take_back()]

    def stop(self) -> None:
        for pool in self._pools.values():
            pool.stop()

    def _work(self, waiting: SimpleQueue[Execution | None]) -> None:
        while (execution := waiting.get()) is not None:
            self._carry_out(execution)
            # Let go before waiting for the next: an idle thread must not keep a payload alive.
            del execution


class _Pool:
    """The threads of one queue, around the line of what waits for them."""

    def __init__(self, queue: str, limit: int, work: Callable[[SimpleQueue[Execution | None]], None]) -> None:
        self._queue = queue
        self._limit = limit
        self._work = work
        self._waiting: SimpleQueue[Execution | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def put(self, execution: Execution) -> None:
        self._waiting.put(execution)
        if len(self._threads) < self._limit:
            thread = threading.Thread(
                target=self._work,
                args=(self._waiting,),
                name=f"sa_jobqueue-{self._queue}-{len(self._threads) + 1}",
                # A handler that outlives the grace period must not keep the process alive.
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def take_back(self) -> list[Execution]:
        taken = []
        try:
            while True:
                if (execution := self._waiting.get_nowait()) is not None:
                    taken.append(execution)
        except Empty:
            return taken

    def stop(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
