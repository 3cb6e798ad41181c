"""What happened to one job, at one of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, TypedDict

from sa_jobqueue.states import JobStatus, Verb

DropCause = Literal["lost", "gone", "completed"]


class _Job(Protocol):
    """A record of one run of a job, read from the database."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def counted_attempts(self) -> int: ...


class JobFields(TypedDict):
    """What every event of a job begins with."""

    job_id: int
    kind: str
    queue: str
    attempt: int


def job_fields(job: _Job) -> JobFields:
    """The fields of a `JobEvent`: `JobStarted(**job_fields(job), ...)`."""
    return {"job_id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.counted_attempts}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something happened to a job; which event it is says what."""

    job_id: int
    kind: str
    queue: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobEvent):
    """A handler begins."""

    max_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettled(JobEvent):
    """An outcome is stored. `duration` is the handler's time.

    It is None when the handler never began (a release, an abort, a payload that is too new), and when the runner decided
    in its place while it ran. `delay` is the time until a retry or a snoozed job is due, `reason` why a job was discarded
    or aborted, `error` the text that went into `last_error`. `fault` tells why the database refused the outcome as it was
    given: then it was stored without its details (result, error, reason).
    """

    max_attempts: int
    verb: Verb
    status: JobStatus
    duration: timedelta | None = None
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleDelayed(JobEvent):
    """An outcome could not be stored yet and is tried again after `retry_in`.

    "busy": somebody's transaction holds the row, or the database refuses the outcome and `fault` tells why.
    "expired": the lease was past, so it is renewed first.
    """

    verb: Verb
    cause: Literal["busy", "expired"]
    retry_in: timedelta
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDropped(JobEvent):
    """An outcome is thrown away: nothing of it was written, for the job isn't this runner's any more.

    "lost": another owner or an operator has it, or it was settled in the handler's place after a timeout; after a lost
    answer this outcome may have landed before them. "gone": the row doesn't exist. "completed": the job is done, by the
    handler's own transaction; after that it ended so, with this `error`, or still ran when its time was over; with the
    verb complete it has returned a result that was to be kept.
    """

    verb: Verb
    cause: DropCause
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionInDoubt(JobEvent):
    """A handler has ended, and it isn't known whether its own transaction has completed the job.

    With `error`, what the handler ended with, most often because an answer is missing; without it somebody else has yet
    to end the transaction. It is found out now; JobSettled tells what it was.
    """

    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(JobEvent):
    """A renewal found that a job isn't this runner's any more, while its handler still runs."""

    cause: Literal["lost", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTimedOut(JobEvent):
    """A handler has run for longer than its `timeout`. With `cancelled` it is async and cancelled now; others run on.

    Its lease is renewed no more. What it says within `given_up_in` still counts; after that the attempt is settled in
    its place, as one that timed out. With `completed` its own transaction has completed the job, and nothing more is
    written. Its slot stays occupied until it ends.
    """

    timeout: timedelta
    given_up_in: timedelta
    cancelled: bool
    completed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(JobEvent):
    """A renewal brought somebody's request to cancel a running job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFault(JobEvent):
    """A handler's retry policy gave no usable answer; the default policy chose `delay` instead."""

    fault: str
    delay: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerPayload(JobEvent):
    """A job whose payload is newer than the handler here is put back, so that newer code may run it.

    `newest` is the version that the handler takes. The job is due again after `retry_in`; the start doesn't count. Others
    of its kind and version are put back in silence for as long.
    """

    payload_version: int
    newest: int
    retry_in: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescued(JobEvent):
    """A job was taken back from a runner that let its lease pass; `status` is what it is now."""

    status: JobStatus
    leased_by: str | None


AnyJobEvent = (
    JobStarted
    | JobSettled
    | SettleDelayed
    | OutcomeDropped
    | CompletionInDoubt
    | LeaseLost
    | HandlerTimedOut
    | CancelRequested
    | NewerPayload
    | PolicyFault
    | JobRescued
)
