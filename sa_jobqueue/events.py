"""What a runner tells about itself: one frozen value per thing that happened, and who listens.

Code emits events and never logs; logging, metrics and traces are subscribers. Fields have the same names everywhere:
`job_id`, `kind`, `queue`, `attempt`, `runner_id`. No event holds a payload.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from sa_jobqueue.failures import describe_error
from sa_jobqueue.states import JobStatus, Verb

DropCause = Literal["lost", "gone", "completed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStarted:
    """A runner is connected and begins to claim; `queues` maps each queue to how many of its jobs may run at once.

    `executors` maps each queue to the name of its executor.
    """

    runner_id: str
    queues: Mapping[str, int]
    kinds: tuple[str, ...]
    executors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStopping:
    """A runner claims nothing more; it waits up to `grace` for `running` jobs. `cause` is a signal's name or a reason."""

    runner_id: str
    cause: str
    running: int
    grace: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStopped:
    """A runner is through.

    `handed_back` jobs were still running and are ready again; `left_to_leases` could not be written, or were not to be,
    and come back when their leases are over.
    """

    runner_id: str
    exit_code: int
    handed_back: int
    left_to_leases: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsClaimed:
    """One claim that brought jobs: how many of each queue, and how long the statement took."""

    runner_id: str
    queues: Mapping[str, int]
    duration: timedelta

    @property
    def count(self) -> int:
        return sum(self.queues.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """A handler begins."""

    job_id: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettled:
    """An outcome is stored. `duration` is the handler's time.

    It is None when the handler never began (a release, an abort), and when the runner decided in its place while it ran.
    `delay` is the time until a retry or a snoozed job is due, `reason` why a job was discarded or aborted, `error` the
    text that went into `last_error`. `fault` tells why the database refused the outcome as it was given: then it was
    stored without its details (result, error, reason).
    """

    job_id: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    verb: Verb
    status: JobStatus
    duration: timedelta | None = None
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleDelayed:
    """An outcome could not be stored yet and is tried again after `retry_in`.

    "busy": somebody's transaction holds the row, or the database refuses the outcome and `fault` tells why.
    "expired": the lease was past, so it is renewed first.
    """

    job_id: int
    kind: str
    queue: str
    attempt: int
    verb: Verb
    cause: Literal["busy", "expired"]
    retry_in: timedelta
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDropped:
    """An outcome is thrown away: nothing was written, for the job isn't this runner's any more.

    "lost": another owner or an operator has it, or it was settled in the handler's place after a timeout; after a lost
    answer this outcome may have landed before them. "gone": the row doesn't exist. "completed": the job is done, by the
    handler's own transaction; after that it ended so, with this `error`, or still ran when its time was over.
    """

    job_id: int
    kind: str
    queue: str
    attempt: int
    verb: Verb
    cause: DropCause
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionInDoubt:
    """A handler has ended, and it isn't known whether its own transaction has completed the job.

    With `error`, what the handler ended with, most often because an answer is missing; without it somebody else has yet
    to end the transaction. It is found out now; JobSettled tells what it was.
    """

    job_id: int
    kind: str
    queue: str
    attempt: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """A renewal found that a job isn't this runner's any more, while its handler still runs."""

    job_id: int
    kind: str
    queue: str
    attempt: int
    cause: Literal["lost", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTimedOut:
    """A handler has run for longer than its `timeout`. With `cancelled` it is async and cancelled now; others run on.

    Its lease is renewed no more. What it says within `given_up_in` still counts; after that the attempt is settled in
    its place, as one that timed out. With `completed` its own transaction has completed the job, and nothing more is
    written. Its slot stays occupied until it ends.
    """

    job_id: int
    kind: str
    queue: str
    attempt: int
    timeout: timedelta
    given_up_in: timedelta
    cancelled: bool
    completed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A renewal brought somebody's request to cancel a running job."""

    job_id: int
    kind: str
    queue: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked:
    """One handler has kept the event loop from turning for `duration` by now: all others on the loop wait for it.

    Told once for each blocking, while it lasts. `location` is where the loop was then; without a job it was in code that
    no handler has begun.
    """

    runner_id: str
    job_id: int | None
    kind: str | None
    queue: str | None
    attempt: int | None
    duration: timedelta
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescued:
    """A job was taken back from a runner that let its lease pass; `status` is what it is now."""

    job_id: int
    kind: str
    queue: str
    attempt: int
    status: JobStatus
    leased_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPruned:
    """A sweep deleted jobs of one status that were kept for as long as the retention says."""

    runner_id: str
    status: JobStatus
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRefused:
    """The database keeps jobs that are past their retention: so many so far, for the first of them because of `fault`.

    Most often an application's foreign key without ON DELETE. Told when it changes; they are tried again now and then.
    """

    runner_id: str
    status: JobStatus
    count: int
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRefused:
    """The database lets nobody do this to a job's row (somebody's trigger, for example), and `fault` tells why.

    Verbs: claim, release (of a claim whose answer was lost), renew, rescue. Told once for each job and verb; the job is
    tried again and again, its neighbours go on. An outcome that is refused is told by SettleDelayed or JobSettled.
    """

    runner_id: str
    job_id: int
    verb: Verb
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKinds:
    """Due jobs in this runner's queues that it has no handler for: how many of each kind, among a queue's first 2,000.

    Told when another kind joins. They wait for a runner that knows them; see `UnknownKindsPostponed` for a crowd.
    """

    runner_id: str
    kinds: Mapping[str, int]
    nearest: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKindsPostponed:
    """More than 1,000 due jobs that this runner has no handler for stood in a queue, and nobody had such a job in work.

    Those behind the first 1,000 are due later, the last of them at `until` by the database's clock: how many of each kind
    in each queue. Nothing else of them has changed. Told once for every sweep that moved some.
    """

    runner_id: str
    queues: Mapping[str, Mapping[str, int]]
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedQueues:
    """Due jobs that this runner has a handler for, in queues that it does not serve: how many of each kind in each.

    Another runner may serve them.
    """

    runner_id: str
    queues: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFault:
    """A handler's retry policy gave no usable answer; the default policy chose `delay` instead."""

    job_id: int
    kind: str
    queue: str
    attempt: int
    fault: str
    delay: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpFailed:
    """Commits do not wake this runner, it only polls. Told once for each cause.

    "unheard": it listens and hears nothing, most often through a transaction pooler, and stops listening. "refused": the
    database does not let it say that it waits, and `fault` tells why; it tries again every minute.
    """

    runner_id: str
    cause: Literal["unheard", "refused"]
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFailed:
    """One of the runner's loops failed for the `failures`-th time in a row and tries again after `retry_in`.

    None means that it can't go on, and the runner ends.
    """

    runner_id: str
    loop: str
    error: str
    failures: int
    retry_in: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRecovered:
    """A loop works again; its first failure was `after` ago."""

    runner_id: str
    loop: str
    failures: int
    after: timedelta


Event = (
    RunnerStarted
    | RunnerStopping
    | RunnerStopped
    | JobsClaimed
    | JobStarted
    | JobSettled
    | SettleDelayed
    | OutcomeDropped
    | CompletionInDoubt
    | LeaseLost
    | HandlerTimedOut
    | CancelRequested
    | LoopBlocked
    | JobRescued
    | JobsPruned
    | PruneRefused
    | RowRefused
    | UnknownKinds
    | UnknownKindsPostponed
    | UnservedQueues
    | PolicyFault
    | WakeUpFailed
    | LoopFailed
    | LoopRecovered
)

#: Called in the thread where it happened, so it must be quick and thread-safe; what it raises goes nowhere.
#:
#: One that has a method `hears(kind, verb) -> bool` says by False that it has no use now for what goes as it should:
#: JobsClaimed, JobStarted, and JobSettled with the verb complete and no fault. Every job brings such events, and what
#: nobody hears is not made. For all others `verb` is None, and they are told in any case.
Subscriber = Callable[[Event], None]


class Subscribers:
    """Everyone who listens to one runner. False when nobody does, so that an event need not even be made."""

    __slots__ = ("_reported", "_subscribers")

    def __init__(self, subscribers: Iterable[Subscriber] = ()) -> None:
        self._subscribers = tuple(subscribers)
        self._reported: set[int] = set()
        for subscriber in self._subscribers:
            if not callable(subscriber):
                raise TypeError(f"subscribers: expected functions that take an event, got {subscriber!r}")

    def __bool__(self) -> bool:
        return bool(self._subscribers)

    def hear(self, kind: type[Event], verb: Verb | None = None) -> bool:
        """Whether anybody has a use for such an event, so that it is worth making. A subscriber that fails to say is told."""
        return any(_hears(subscriber, kind, verb) for subscriber in self._subscribers)

    def emit(self, event: Event) -> None:
        """Tell everyone, in order. Never raises: a subscriber that fails is warned about once, and called again."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except BaseException as error:  # a subscriber must not end the loop that it listens to
                with suppress(BaseException):  # nor may a logging handler, which may be what has just failed
                    self._report(subscriber, event, error)

    def _report(self, subscriber: Subscriber, event: Event, error: BaseException) -> None:
        if id(subscriber) in self._reported:
            return
        self._reported.add(id(subscriber))
        # Without any logging set up this still reaches stderr, as Python's last resort.
        logging.getLogger("sa_jobqueue.events").warning(
            "the subscriber %s failed on %s and isn't reported again: %s",
            getattr(subscriber, "__qualname__", type(subscriber).__qualname__),
            type(event).__name__,
            describe_error(error),
        )


def _hears(subscriber: Subscriber, kind: type[Event], verb: Verb | None) -> bool:
    try:
        hears = getattr(subscriber, "hears", None)
        return hears is None or bool(hears(kind, verb))
    except BaseException:
        return True
