"""The timekeeper's hands: what happens to a handler that runs for too long. When is decided in `timeouts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.executors.protocol import Execution, Executor
    from sa_jobqueue.runner.settle import Finished
    from sa_jobqueue.runner.watch import Watch


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
