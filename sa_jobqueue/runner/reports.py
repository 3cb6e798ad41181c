"""What is told of an outcome, by whoever finds out what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.events import JobSettled, OutcomeDropped, PolicyFault, job_fields
from sa_jobqueue.records import Landing
from sa_jobqueue.states import JobStatus, Verb

if TYPE_CHECKING:
    from sa_jobqueue.events import DropCause, Subscribers
    from sa_jobqueue.records import Settled, Settlement
    from sa_jobqueue.runner.executors.protocol import Execution
    from sa_jobqueue.runner.settle import Finished


def report_answer(finished: Finished, answer: Settled, subscribers: Subscribers) -> None:
    """Tell what the store has said to an outcome: stored, done by the handler's own transaction, or thrown away."""
    if answer.completed:
        report_completed(finished, subscribers)
    elif answer.landing is Landing.LANDED and answer.status is not None:
        job, settlement = finished.execution.job, finished.settlement
        subscribers.emit(
            JobSettled(
                **job_fields(job),
                max_attempts=job.max_attempts,
                verb=settlement.verb,
                status=answer.status,
                duration=finished.duration,
                delay=settlement.delay,
                reason=settlement.reason,
                error=settlement.error,
                fault=answer.fault,
            )
        )
    else:
        report_dropped(finished, "gone" if answer.landing is Landing.GONE else "lost", subscribers)


def report_completed(finished: Finished, subscribers: Subscribers) -> None:
    """Tell that the handler's own transaction has completed the job, and what else the handler said."""
    settlement = finished.settlement
    if subscribers.hear(JobSettled, Verb.COMPLETE):
        job = finished.execution.job
        subscribers.emit(
            JobSettled(
                **job_fields(job),
                max_attempts=job.max_attempts,
                verb=Verb.COMPLETE,
                status=JobStatus.DONE,
                duration=finished.duration,
            )
        )
    if finished.again:  # what the handler ended in is most often the missing answer itself
        return
    completion = finished.execution.completion
    stored = None if completion is None else completion.result
    if settlement.verb is not Verb.COMPLETE or settlement.result not in (None, stored):
        report_dropped(finished, "completed", subscribers)


def report_dropped(finished: Finished, cause: DropCause, subscribers: Subscribers) -> None:
    """Tell that an outcome was thrown away."""
    job, settlement = finished.execution.job, finished.settlement
    subscribers.emit(
        OutcomeDropped(**job_fields(job), verb=settlement.verb, cause=cause, error=settlement.error)
    )


def report_fault(execution: Execution, settlement: Settlement, fault: str, subscribers: Subscribers) -> None:
    """Tell that a handler's retry policy gave no usable answer."""
    subscribers.emit(PolicyFault(**job_fields(execution.job), fault=fault, delay=settlement.delay))
