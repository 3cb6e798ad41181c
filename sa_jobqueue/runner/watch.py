"""Handlers under time: who runs, and until when.

An attempt costs two short entries here and wakes no thread, unless its timeout is nearer than that of every other; one
without a timeout is never entered.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from sa_jobqueue.runner import timeouts

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sa_jobqueue.records import LeaseKey
    from sa_jobqueue.runner.executors.protocol import Execution


class Timed(NamedTuple):
    """An attempt that runs, the time it was given, and when, in monotonic seconds, that is over."""

    execution: Execution
    timeout: timedelta
    due: float


class Watch:
    """The attempts that run now and have a timeout: the handler's own, or else `default`."""

    def __init__(self, default: timedelta | None, *, on_sooner: Callable[[timeouts.Began], None]) -> None:
        self._default = default
        self._on_sooner = on_sooner
        self._lock = threading.Lock()
        self._running: dict[LeaseKey, Timed] = {}
        #: The time at which `take` will be called, as far as it was asked for.
        self._awaited: float | None = None

    def begin(self, execution: Execution) -> None:
        """The handler begins now, on whatever thread."""
        timeout = execution.handler.timeout or self._default
        if timeout is None or timeout == "never":
            return
        execution.timeout = timeout
        due = time.monotonic() + timeout.total_seconds()
        with self._lock:
            self._running[execution.key] = Timed(execution, timeout, due)
            sooner = self._awaited is None or due < self._awaited
            if sooner:
                self._awaited = due
        if sooner:
            self._on_sooner(timeouts.Began(due))

    def end(self, execution: Execution) -> None:
        """The handler has ended."""
        if execution.timeout is not None:
            with self._lock:
                self._running.pop(execution.key, None)

    def take(self, now: float) -> tuple[list[Timed], float | None]:
        """Those that are past their timeout, once, and when the next of the others will be."""
        with self._lock:
            past = [timed for timed in self._running.values() if timed.due <= now]
            for timed in past:
                del self._running[timed.execution.key]
            self._awaited = min((timed.due for timed in self._running.values()), default=None)
            return past, self._awaited
