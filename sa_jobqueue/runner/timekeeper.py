"""Handlers under time: who runs how long, and what happens to one that runs for too long.

`timeouts` decides when. An attempt costs two short entries in the watch and wakes no thread, unless its timeout is
nearer than that of every other; one without a timeout is never entered.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from sa_jobqueue.events import HandlerTimedOut, job_fields
from sa_jobqueue.runner import timeouts
from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.runner.reports import report_fault
from sa_jobqueue.runner.settle import in_place
from sa_jobqueue.runner.verdict import timeout_error, verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.runner.book import Book, Key
    from sa_jobqueue.runner.executors.protocol import Execution, Executor
    from sa_jobqueue.runner.settle import Finished


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
        self._running: dict[Key, Timed] = {}
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


class Timekeeper:
    """Asks handlers to end and gives up on those that don't."""

    def __init__(
        self,
        watch: Watch,
        *,
        book: Book,
        executor: Executor,
        patience: timedelta,
        to_settler: Callable[[Finished], None],
        subscribers: Subscribers,
    ) -> None:
        self._watch = watch
        self._book = book
        self._executor = executor
        self._patience = patience
        self._to_settler = to_settler
        self._subscribers = subscribers

    def perform(self, action: Any) -> Any:
        match action:
            case timeouts.TimeOut(at):
                past, following = self._watch.take(at)
                overdue = [timed for timed in past if self._book.stop_renewing(timed.execution.key)]
                for timed in overdue:
                    self._time_out(timed.execution, timed.timeout)
                return timeouts.TimedOut(tuple(timed.execution.key for timed in overdue), following)
            case timeouts.GiveUp(keys):
                for key in keys:
                    if (given_up := self._book.give_up(key)) is not None:
                        self._settle_in_its_place(given_up)
        return None

    def _time_out(self, execution: Execution, timeout: timedelta) -> None:
        self._subscribers.emit(
            HandlerTimedOut(
                **job_fields(execution.job),
                timeout=timeout,
                given_up_in=self._patience,
                cancelled=execution.handler.is_async,
                completed=execution.completed,
            )
        )
        self._executor.interrupt(execution, Interruption.TIMEOUT)

    def _settle_in_its_place(self, execution: Execution) -> None:
        execution.context.mark_lost()
        error = timeout_error(execution.timeout)
        settlement, fault, _ = verdict(execution.job, execution.handler, raised=error)
        if fault is not None:
            report_fault(execution, settlement, fault, self._subscribers)
        self._to_settler(in_place(execution, settlement))
