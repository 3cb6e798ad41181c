"""The executor of coroutines: hundreds of async handlers at once, on one event loop in a thread of its own.

The loop is the handlers' alone. What keeps their leases and writes their outcomes lives in other threads, so that a
handler which blocks the loop delays its neighbours and nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sa_jobqueue.runner.executors.loop_watch import LoopWatch, current_execution
from sa_jobqueue.runner.executors.threads import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sa_jobqueue.runner.executors.loop_watch import Blockage
    from sa_jobqueue.runner.executors.protocol import Execution, Interruption

#: How long, in seconds, idle threads get to end.
CLOSING = 5.0


class AsyncioExecutor:
    """One task for each execution, as many at once in each queue as its limit.

    Handlers that are no coroutine functions run in threads, within the same limits. `on_blocked` is told, once for each
    time, when one handler has kept the loop from turning for more than a second; `on_fault` when the loop itself has
    broken, its watch, or what begins and ends tasks on it, so that nothing of that will ever go on.
    """

    def __init__(
        self,
        limits: Mapping[str, int],
        *,
        carry_out: Callable[[Execution], None],
        carry_out_async: Callable[[Execution], Coroutine[Any, Any, None]],
        let_go: Callable[[Execution], None],
        on_blocked: Callable[[Blockage], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._lanes = {queue: _Lane(limit) for queue, limit in limits.items()}
        self._carry_out = carry_out
        self._carry_out_async = carry_out_async
        self._let_go = let_go
        self._on_blocked = on_blocked
        self._on_fault = on_fault
        self._threads = Pool("def", sum(limits.values()), self._in_thread, self._in_thread)
        self._thread = threading.Thread(target=self._turn, name="sa_jobqueue-asyncio", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        # The context of every task is a copy of this one, never of the task that happened to end before it.
        self._context = contextvars.Context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0
        self._stopped = False
        self._over = False

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._watch = LoopWatch(self._loop, self._thread, self._on_blocked, self._on_fault)
        try:
            self._threads.start()
            self._watch.start()
            self._thread.start()
        except BaseException:
            self._watch.stop()
            self._threads.stop()
            self._loop.close()
            raise

    def submit(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._lanes[execution.job.queue].waiting.append(execution)
        if executions:
            self._call(self._fill)

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        return [execution for queue in queues for execution in self._lanes[queue].take_all()]

    def waiting(self, queue: str) -> int:
        return len(self._lanes[queue].waiting)

    def interrupt(self, execution: Execution, cause: Interruption) -> bool:
        return execution.interrupt(cause)

    def stop(self) -> None:
        self._stopped = True
        self._call(self._fill)

    def join(self, timeout: float) -> bool:
        """Wait for the loop's thread: it ends when no handler runs and no task that one has left behind."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _call(self, act: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed: whatever still comes waits to be taken back
                self._loop.call_soon_threadsafe(self._do, act)

    # From here on everything runs on the loop.

    def _do(self, act: Callable[[], None]) -> None:
        """What is ours to do there: its failure would be asyncio's to log, and a slot would be lost with its job."""
        try:
            act()
        except BaseException as fault:
            self._on_fault(fault)

    def _fill(self) -> None:
        for lane in self._lanes.values():
            self._begin_next(lane)
        self._end_when_idle()

    def _begin_next(self, lane: _Lane) -> None:
        while self._stopped or lane.running < lane.limit:
            try:
                execution = lane.waiting.popleft()
            except IndexError:  # nothing there, or taken back just now
                return
            if self._stopped:
                self._let_go(execution)
            else:
                self._begin(lane, execution)

    def _begin(self, lane: _Lane, execution: Execution) -> None:
        if execution.handler.is_async:
            self._begin_task(lane, execution)
        else:
            self._threads.put(execution)
        lane.running += 1
        self._running += 1

    def _begin_task(self, lane: _Lane, execution: Execution) -> None:
        run = _Run(execution)
        task = asyncio.get_running_loop().create_task(
            run.carry_out(self._carry_out_async), context=self._context.copy()
        )
        # Kept here, for the loop itself holds no task that waits.
        self._tasks.add(task)
        task.add_done_callback(
            lambda task: self._do(lambda: self._after_task(lane, run, task)), context=self._context
        )

    def _after_task(self, lane: _Lane, run: _Run, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not run.begun:  # some handler cancels whatever task it finds
            self._let_go(run.execution)
        self._after(lane)

    def _in_thread(self, execution: Execution) -> None:
        """A handler that is no coroutine function, in one of the threads; also after a stop, for its slot is taken."""
        lane = self._lanes[execution.job.queue]
        try:
            self._carry_out(execution)
        finally:
            self._call(lambda: self._after(lane))

    def _after(self, lane: _Lane) -> None:
        lane.running -= 1
        self._running -= 1
        self._begin_next(lane)
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self._stopped and not self._running:
            self._over = True
            asyncio.get_running_loop().stop()

    def _turn(self) -> None:
        """The thread: turn the loop until the executor is stopped and idle, then end what handlers have left on it."""
        loop = self._loop
        assert loop is not None
        while not self._over:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # Of a task that some handler has made: the others live on this loop.
                continue
            except BaseException as fault:
                self._on_fault(fault)
                self._watch.stop()
                self._threads.stop()
                with suppress(BaseException):
                    loop.close()
                return
        self._watch.stop()
        self._threads.stop()
        loop.set_task_factory(None)  # of some handler
        _end_leftovers(loop)
        for close in (loop.shutdown_asyncgens, loop.shutdown_default_executor):
            _run_to_end(loop, close())
        loop.close()
        self._threads.join(time.monotonic() + CLOSING)


def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel every task that handlers have made and left, and wait until all have ended."""
    while left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        _run_to_end(loop, asyncio.wait(left))
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # nobody else will ask, and nobody need be told


def _run_to_end(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
    task = loop.create_task(coroutine)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError):
            continue  # of some other task, or it has stopped the loop
        except BaseException:
            return  # the loop itself has broken


class _Lane:
    """One queue: what waits may be taken by any thread, the rest is the loop's."""

    __slots__ = ("limit", "running", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self.waiting: deque[Execution] = deque()

    def take_all(self) -> list[Execution]:
        taken: list[Execution] = []
        with suppress(IndexError):
            while True:
                taken.append(self.waiting.popleft())
        return taken


class _Run:
    """One task: a task that is cancelled before its first step never begins."""

    __slots__ = ("begun", "execution")

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.begun = False

    async def carry_out(self, carry_out: Callable[[Execution], Coroutine[Any, Any, None]]) -> None:
        self.begun = True
        current_execution.set(self.execution)
        with suppress(BaseException):  # all that a handler raised is in its outcome by now
            await carry_out(self.execution)
