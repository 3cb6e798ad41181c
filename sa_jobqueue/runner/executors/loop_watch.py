"""Who blocks the event loop: a thread that looks now and then which callback the loop is in.

A loop turns by running short callbacks, one step of a task each. One that is found in the same callback at several looks
in a row, and has not turned in between, is blocked by it. The callback's context tells the job, also in tasks that the
handler has made itself; the handlers that merely wait are never named.

False alarms: a look that comes late counts as two looks at most, so a process that was stopped, or a machine too busy to
run this thread, adds next to nothing; both threads are of one process and need the same lock to run. A loop that is busy
with many short steps is found in another one each time. For the same reason code that holds Python's lock throughout
goes unnoticed; and so does a loop that isn't asyncio's own, whose callbacks have no frames.
"""

from __future__ import annotations

import sys
import threading
import time
from asyncio.events import Handle
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

    from sa_jobqueue.runner.executors.protocol import Execution

#: The loop is blocked when one callback has run for longer than so many seconds.
BLOCKED_AFTER = 1.0
#: Seconds between two looks.
LOOK_INTERVAL = 0.25

#: The code of the one frame that every callback of a loop has.
_RUN = Handle._run.__code__  # noqa: SLF001 - it has no public name

#: The execution whose handler runs in this context, or has made what runs in it.
current_execution: ContextVar[Execution] = ContextVar("sa_jobqueue_execution")


class Blockage(NamedTuple):
    """A loop that does not turn: for how long by now, in whose handler (None: in no job's), and where."""

    duration: timedelta
    execution: Execution | None
    location: str


class Watching(NamedTuple):
    """What the last look has found: the callback, for how many seconds it has run by then, whether it was told."""

    callback: Handle | None = None
    blocked: float = 0.0
    told: bool = False


def look(state: Watching, callback: Handle | None, *, turned: bool, elapsed: float) -> tuple[Watching, bool]:
    """One more look, so many seconds after the last one: True when it shows for the first time that the loop is blocked."""
    if callback is None or callback is not state.callback or turned:
        return Watching(callback), False
    # Late by more than that, it is not the loop alone that does not get on.
    blocked = state.blocked + min(elapsed, 2 * LOOK_INTERVAL)
    begins = blocked > BLOCKED_AFTER and not state.told
    return Watching(callback, blocked, state.told or begins), begins


class LoopWatch:
    """Looks at one loop while it runs; `on_blocked` is called in the watching thread, once for each blocking.

    `on_fault` is told what ended the watching thread before its time.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        on_blocked: Callable[[Blockage], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._looped = thread
        self._on_blocked = on_blocked
        self._on_fault = on_fault
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._run, name="sa_jobqueue-loop-watch", daemon=True)
        self._turned = True

    def start(self) -> None:
        self._watcher.start()

    def stop(self) -> None:
        """Look no more; afterwards the loop may be closed."""
        self._stopping.set()
        if self._watcher.ident is not None:
            self._watcher.join()

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as fault:
            self._on_fault(fault)

    def _watch(self) -> None:
        state, looked_at = Watching(), time.monotonic()
        while not self._stopping.wait(LOOK_INTERVAL):
            elapsed, looked_at = time.monotonic() - looked_at, time.monotonic()
            callback = self._callback()
            state, blocked = look(state, callback, turned=self._turned, elapsed=elapsed)
            if blocked and callback is not None:
                duration = timedelta(seconds=state.blocked)
                self._on_blocked(Blockage(duration, _execution(callback), self._location()))
            elif state.callback is not None and not state.blocked:
                self._turned = False
                self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        self._turned = True

    def _frame(self) -> FrameType | None:
        # Never kept: a frame holds all that its handler has in hand.
        return sys._current_frames().get(self._looped.ident or 0)  # noqa: SLF001 - documented for this use

    def _callback(self) -> Handle | None:
        """What the loop is in just now, None while it waits."""
        found: Handle | None = None
        frame = self._frame()
        while frame is not None:
            if frame.f_code is _RUN:
                found = frame.f_locals["self"]
            frame = frame.f_back
        return found

    def _location(self) -> str:
        frame = self._frame()
        if frame is None:
            return "unknown"
        return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def _execution(callback: Handle) -> Execution | None:
    """The job in whose context a callback runs, None when it is no job's."""
    context = getattr(callback, "_context", None)
    return None if context is None else context.get(current_execution)
