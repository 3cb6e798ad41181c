"""Where handler code runs: the protocol, and the executor of threads.

An executor takes executions, carries each out once and gives back on request those it has not begun. It knows nothing
of the database; a new kind of executor is one class with these methods.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
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

    def start(self) -> None:
        """Be ready to carry out; raises what keeps it from that."""

    def submit(self, executions: Sequence[Execution]) -> None:
        """Carry these out, each once, in order per queue; returns at once and never raises."""

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        """Give back what was submitted for these queues and has not begun; it never will."""
        ...

    def stop(self) -> None:
        """Begin nothing more: what waits is let go or can be taken back, what runs goes on. Returns at once."""

    def join(self, timeout: float) -> bool:
        """After `stop`: wait until nothing runs; False when something does after `timeout` seconds."""
        ...


class ThreadExecutor:
    """One pool of threads for each queue, as large as the queue's limit, grown as work arrives."""

    def __init__(
        self,
        limits: Mapping[str, int],
        *,
        carry_out: Callable[[Execution], None],
        let_go: Callable[[Execution], None],
    ) -> None:
        self._pools = {queue: _Pool(queue, limit, carry_out, let_go) for queue, limit in limits.items()}

    def start(self) -> None:
        for pool in self._pools.values():
            pool.start()

    def submit(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._pools[execution.job.queue].put(execution)

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        return [execution for queue in queues for execution in self._pools[queue].take_back()]

    def stop(self) -> None:
        for pool in self._pools.values():
            pool.stop()

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        return all(pool.join(deadline) for pool in self._pools.values())


class _Pool:
    """The threads of one queue, around the line of what waits for them; None in the line ends one thread."""

    def __init__(
        self,
        queue: str,
        limit: int,
        carry_out: Callable[[Execution], None],
        let_go: Callable[[Execution], None],
    ) -> None:
        self._queue = queue
        self._limit = limit
        self._carry_out = carry_out
        self._let_go = let_go
        self._changing = threading.Lock()
        self._waiting: SimpleQueue[Execution | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def start(self) -> None:
        """The first thread: with it whatever is put in line will be carried out some time."""
        with self._changing:
            self._grow()

    def put(self, execution: Execution) -> None:
        self._waiting.put(execution)
        if len(self._threads) < self._limit:
            # A machine that has no thread left to give slows us down; those that run do the work.
            with self._changing, suppress(RuntimeError, MemoryError):
                if not self._stopped:
                    self._grow()

    def take_back(self) -> list[Execution]:
        taken: list[Execution] = []
        ends = 0
        try:
            while True:
                if (execution := self._waiting.get_nowait()) is None:
                    ends += 1
                else:
                    taken.append(execution)
        except Empty:
            for _ in range(ends):
                self._waiting.put(None)
            return taken

    def stop(self) -> None:
        with self._changing:
            self._stopped = True
            for _ in self._threads:
                self._waiting.put(None)

    def join(self, deadline: float) -> bool:
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _grow(self) -> None:
        thread = threading.Thread(
            target=self._work,
            name=f"sa_jobqueue-{self._queue}-{len(self._threads) + 1}",
            # A handler that outlives the grace period must not keep the process alive.
            daemon=True,
        )
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        while (execution := self._waiting.get()) is not None:
            # Whatever a library threw into this thread for a handler, too late: the next job isn't meant.
            with suppress(BaseException):
                if self._stopped:
                    self._let_go(execution)
                else:
                    self._carry_out(execution)
            # Let go before waiting for the next: an idle thread must not keep a payload alive.
            del execution
