"""What is told of an outcome that is written nowhere, by whoever finds out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.events import JobSettled, OutcomeDropped
from sa_jobqueue.runner import settle
from sa_jobqueue.states import JobStatus, Verb

if TYPE_CHECKING:
    from sa_jobqueue.events import DropCause, Subscribers


def report_dropped(finished: settle.Finished, cause: DropCause, subscribers: Subscribers) -> None:
    """Tell that an outcome was thrown away."""
    job, settlement = finished.execution.job, finished.settlement
    subscribers.emit(
        OutcomeDropped(
            job_id=job.id,
            kind=job.kind,
            queue=job.queue,
            attempt=job.counted_attempts,
            verb=settlement.verb,
            cause=cause,
            error=settlement.error,
        )
    )


def report_completed(finished: settle.Finished, subscribers: Subscribers) -> None:
    """Tell that the handler's own transaction has completed the job, and what else the handler said."""
    if not subscribers:
        return
    job, settlement = finished.execution.job, finished.settlement
    subscribers.emit(
        JobSettled(
            job_id=job.id,
            kind=job.kind,
            queue=job.queue,
            attempt=job.counted_attempts,
            max_attempts=job.max_attempts,
            verb=Verb.COMPLETE,
            status=JobStatus.DONE,
            duration=None if finished.seconds is None else timedelta(seconds=finished.seconds),
        )
    )
    if finished.again:  # what the handler ended in is most often the missing answer itself
        return
    completion = finished.execution.completion
    stored = None if completion is None else completion.result
    if settlement.verb is not Verb.COMPLETE or settlement.result not in (None, stored):
        report_dropped(finished, "completed", subscribers)
