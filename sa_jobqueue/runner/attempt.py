"""One attempt at one job, on the handler's own thread: call the handler, decide the verdict, pass it on."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.errors import PayloadError
from sa_jobqueue.events import JobStarted, PolicyFault, Subscribers
from sa_jobqueue.failures import describe_error
from sa_jobqueue.records import Settlement
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.runner.verdict import CANCELLED_REASON, verdict
from sa_jobqueue.states import Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue.runner.executors.protocol import Execution

#: The backoff of an attempt whose verdict itself failed.
LAST_RESORT = timedelta(seconds=10)


class Attempts:
    """Carries out executions; whatever a handler does, each ends in exactly one `on_finished`."""

    def __init__(self, subscribers: Subscribers, *, on_finished: Callable[[Finished], None]) -> None:
        self._subscribers = subscribers
        self._on_finished = on_finished
        self._process = os.getpid()

    def carry_out(self, execution: Execution) -> None:
        """Run the handler and hand its verdict over. Never raises, save for what is thrown into the thread meanwhile.

        A job whose lease was lost while it waited here is somebody else's by now, and one that somebody cancelled is
        nobody's: its handler isn't called.
        """
        if execution.context.lost:
            self.let_go(execution)
            return
        if execution.context.cancel_requested:
            aborted = Settlement(*execution.key, Verb.ABORT, reason=CANCELLED_REASON)
            self._on_finished(Finished(execution, aborted, seconds=None))
            return
        self._report_start(execution)
        started = time.perf_counter()
        try:
            settlement, fault = _attempt(execution)
        except (
            BaseException
        ) as error:  # without a verdict an attempt would hold its slot and its lease for ever
            settlement = Settlement(
                *execution.key, Verb.RETRY, delay=LAST_RESORT, error=describe_error(error)
            )
            fault = None
        if os.getpid() != self._process:
            # The handler has forked, and this is its child coming back: nothing of the runner is its own, neither the
            # connections nor the job. The parent's thread settles.
            os._exit(0 if settlement.verb is Verb.COMPLETE else 1)
        if fault is not None:
            self._report_fault(execution, settlement, fault)
        self._on_finished(Finished(execution, settlement, time.perf_counter() - started))

    def let_go(self, execution: Execution) -> None:
        """Give it back, not begun: the attempt counts for nothing."""
        self._on_finished(Finished(execution, Settlement(*execution.key, Verb.RELEASE), seconds=None))

    def _report_start(self, execution: Execution) -> None:
        if not self._subscribers:
            return
        job = execution.job
        self._subscribers.emit(
            JobStarted(
                job_id=job.id,
                kind=job.kind,
                queue=job.queue,
                attempt=job.counted_attempts,
                max_attempts=job.max_attempts,
            )
        )

    def _report_fault(self, execution: Execution, settlement: Settlement, fault: str) -> None:
        job = execution.job
        self._subscribers.emit(
            PolicyFault(
                job_id=job.id,
                kind=job.kind,
                queue=job.queue,
                attempt=job.counted_attempts,
                fault=fault,
                delay=settlement.delay,
            )
        )


def _attempt(execution: Execution) -> tuple[Settlement, str | None]:
    """The verdict, made where the error is caught: kept any longer, its traceback keeps the handler's locals alive."""
    job, handler = execution.job, execution.handler
    try:
        if isinstance(job.payload, PayloadError):
            raise job.payload
        returned = handler.bind(execution.context, job.payload)()
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a handler are its failures too
        asked = execution.context.cancel_requested
        return verdict(job, handler, raised=error, cancel_requested=asked)
    return verdict(job, handler, returned=returned)
