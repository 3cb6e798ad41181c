"""The executor of threads: each queue has its own, and its handlers block nobody else's."""

from __future__ import annotations

import contextvars
import threading
import time
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sa_jobqueue.runner.executors.protocol import Execution, Interruption


class ThreadExecutor:
    """One pool of threads for each queue, as large as the queue's limit, grown as work arrives."""

    def __init__(
        self,
        limits: Mapping[str, int],
        *,
        carry_out: Callable[[Execution], None],
        let_go: Callable[[Execution], None],
    ) -> None:
        self._pools = {queue: Pool(queue, limit, carry_out, let_go) for queue, limit in limits.items()}

    def start(self) -> None:
        for pool in self._pools.values():
            pool.start()

    def submit(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._pools[execution.job.queue].put(execution)

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        return [execution for queue in queues for execution in self._pools[queue].take_back()]

    def waiting(self, queue: str) -> int:
        return self._pools[queue].waiting()

    def interrupt(self, execution: Execution, cause: Interruption) -> bool:
        """Nothing ends a thread from outside: its handler may look at the context. The task of an async one can be."""
        return execution.interrupt(cause)

    def stop(self) -> None:
        for pool in self._pools.values():
            pool.stop()

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        return all(pool.join(deadline) for pool in self._pools.values())


class Pool:
    """Some threads around the line of what waits for them; None in the line ends one thread."""

    def __init__(
        self,
        name: str,
        limit: int,
        carry_out: Callable[[Execution], None],
        let_go: Callable[[Execution], None],
    ) -> None:
        self._name = name
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

    def waiting(self) -> int:
        return self._waiting.qsize()

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
            name=f"sa_jobqueue-{self._name}-{len(self._threads) + 1}",
            # A handler that outlives the grace period must not keep the process alive.
            daemon=True,
        )
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        line = iter(self._waiting.get, None)
        taken: list[Execution] = []
        while True:
            # Whatever a library throws into this thread for a handler, too late: the next job isn't meant. A thread that
            # waits sees it when it gets one; taken by a single call, that one is here all the same.
            with suppress(BaseException):
                while True:
                    taken.extend(islice(line, 1 - len(taken)))
                    if not taken:
                        return
                    if self._stopped:
                        self._let_go(taken.pop())
                    else:
                        # What a handler sets in its context is no business of the next one's.
                        contextvars.copy_context().run(self._carry_out, taken.pop())
