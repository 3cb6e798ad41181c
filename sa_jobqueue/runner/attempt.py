"""One attempt at one job, where its handler runs: call the handler, decide the verdict, pass it on.

A handler declared with `async def` is awaited on the executor's event loop, or on one of its own in a thread; all but
the call itself is the same for both.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.events import CompletionInDoubt, JobStarted, Subscribers, job_fields
from sa_jobqueue.failures import describe_error
from sa_jobqueue.records import Settlement
from sa_jobqueue.runner.reports import report_fault
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.runner.verdict import Verdict, verdict
from sa_jobqueue.states import CANCELLED_REASON, Verb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sa_jobqueue.runner.executors.protocol import Execution
    from sa_jobqueue.runner.watch import Watch

#: The backoff of an attempt whose verdict itself failed.
LAST_RESORT = timedelta(seconds=10)


class Attempts:
    """Carries out executions; whatever a handler does, each ends in exactly one `on_finished`.

    `watch` is told who begins and who has ended, where handlers have timeouts.
    """

    def __init__(
        self,
        subscribers: Subscribers,
        *,
        on_finished: Callable[[Finished], None],
        watch: Watch | None = None,
    ) -> None:
        self._subscribers = subscribers
        self._on_finished = on_finished
        self._watch = watch
        self._process = os.getpid()

    def carry_out(self, execution: Execution) -> None:
        """Run the handler and hand its verdict over. Never raises, save for what is thrown into the thread meanwhile.

        A job whose lease was lost while it waited here is somebody else's by now, one that somebody cancelled is nobody's,
        and one that was to be interrupted needs no beginning: its handler isn't called.
        """
        if not self._begins(execution):
            return
        started = time.perf_counter()
        try:
            judged = _attempt(execution)
        except BaseException as error:
            judged = _last_resort(execution, error)
        self._end(execution, judged, started)

    async def carry_out_async(self, execution: Execution) -> None:
        """The same for an async handler, in a task of the running loop that is this execution's alone.

        The task may be cancelled: that ends the handler, and the verdict is handed over all the same.
        """
        if not self._begins(execution):
            return
        started = time.perf_counter()
        try:
            judged = await _attempt_async(execution)
        except BaseException as error:
            judged = _last_resort(execution, error)
        self._end(execution, judged, started)

    def let_go(self, execution: Execution) -> None:
        """Give it back, not begun: the attempt counts for nothing. One that somebody asked to cancel is cancelled so."""
        self._on_finished(Finished(execution, Settlement(*execution.key, Verb.RELEASE), seconds=None))

    def _begins(self, execution: Execution) -> bool:
        context = execution.context
        if context.cancel_requested and not context.lost:
            aborted = Settlement(*execution.key, Verb.ABORT, reason=CANCELLED_REASON)
            self._on_finished(Finished(execution, aborted, seconds=None))
            return False
        if context.lost or execution.interruption is not None:
            self.let_go(execution)
            return False
        if self._subscribers.hear(JobStarted):
            job = execution.job
            self._subscribers.emit(JobStarted(**job_fields(job), max_attempts=job.max_attempts))
        if self._watch is not None:
            self._watch.begin(execution)
        return True

    def _end(self, execution: Execution, judged: Verdict, started: float) -> None:
        settlement = judged.settlement
        if os.getpid() != self._process:
            # The handler has forked, and this is its child coming back: nothing of the runner is its own, neither the
            # connections nor the job. The parent's thread settles.
            os._exit(0 if settlement.verb is Verb.COMPLETE else 1)
        if self._watch is not None:
            self._watch.end(execution)
        if judged.fault is not None and not execution.completed:
            report_fault(execution, settlement, judged.fault, self._subscribers)
        seconds = time.perf_counter() - started
        again = execution.completion is not None and self._look_back(execution, settlement)
        self._on_finished(Finished(execution, settlement, seconds, cause=judged.cause, again=again))

    def _look_back(self, execution: Execution, settlement: Settlement) -> bool:
        """Whether the handler leaves a completion whose fate has to be found out. Lets go of the error that ended it."""
        completion = execution.completion
        assert completion is not None
        error, completion.error = completion.error, None  # its traceback keeps the handler's locals alive
        if execution.completed or not execution.doubtful:
            return False
        if self._subscribers:
            told = None if error is None else settlement.error
            self._subscribers.emit(CompletionInDoubt(**job_fields(execution.job), error=told))
        return True


def _attempt(execution: Execution) -> Verdict:
    """The verdict, made where the error is caught: kept any longer, its traceback keeps the handler's locals alive."""
    try:
        call = execution.handler.bind_job(execution.context, execution.job)
        returned = _run_to_end(execution, call) if execution.handler.is_async else call()
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a handler are its failures too
        return _verdict(execution, raised=error)
    return _verdict(execution, returned=returned)


async def _attempt_async(execution: Execution) -> Verdict:
    """The same on the running loop. Nothing is awaited after the handler, so that a late cancellation hits nobody."""
    try:
        call = execution.handler.bind_job(execution.context, execution.job)
        returned = await _awaited(execution, call)
    except BaseException as error:
        return _verdict(execution, raised=error)
    return _verdict(execution, returned=returned)


def _run_to_end(execution: Execution, call: Callable[[], Awaitable[Any]]) -> Any:
    """An async handler in a thread: a loop for this job alone, closed with whatever the handler left on it."""
    with asyncio.Runner() as runner:
        return runner.run(_awaited(execution, call))


async def _awaited(execution: Execution, call: Callable[[], Awaitable[Any]]) -> Any:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    execution.cancel_by(lambda: loop.call_soon_threadsafe(task.cancel))
    try:
        if execution.interruption is not None:  # by somebody who found no task to cancel yet
            raise asyncio.CancelledError
        return await call()
    finally:
        execution.cancel_by(None)


def _verdict(
    execution: Execution, *, returned: object = None, raised: BaseException | None = None
) -> Verdict:
    return verdict(
        execution.job,
        execution.handler,
        returned=returned,
        raised=raised,
        interruption=execution.interruption,
        timeout=execution.timeout,
        cancel_requested=execution.context.cancel_requested,
        completion=execution.completion,
    )


def _last_resort(execution: Execution, error: BaseException) -> Verdict:
    """Without a verdict an attempt would hold its slot and its lease for ever."""
    return Verdict(Settlement(*execution.key, Verb.RETRY, delay=LAST_RESORT, error=describe_error(error)))
