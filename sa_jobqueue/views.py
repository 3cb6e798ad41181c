"""What people are shown of jobs: one of them, a page, the numbers of a queue; and the filter that chooses them.

Frozen records, as in `records`, made by reads alone: nothing here can change a job. Times are aware, and a moment is
always the database's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant: those that fit everything that is given; nothing given means all.

    `due` means ready jobs whose `run_at` is past. Raises ValueError when `due` is combined with other statuses.
    """

    statuses: tuple[JobStatus, ...] = ()
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    ids: tuple[int, ...] | None = None
    key: str | None = None
    due: bool = False

    def __post_init__(self) -> None:
        chosen = tuple(dict.fromkeys(map(JobStatus, self.statuses)))
        if self.due and chosen not in ((), (JobStatus.READY,)):
            raise ValueError(f"due jobs are ready ones, not {' or '.join(chosen)}: leave out one of the two")
        object.__setattr__(self, "statuses", (JobStatus.READY,) if self.due else chosen)

    @property
    def everything(self) -> bool:
        """Nothing is filtered: every job is meant."""
        return self == JobFilter()


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a handler said last of how far it is: a share from 0 to 1, a text, or both.

    `attempt` and `at` tell whose it is and when it was written down: after a retry it is still that of the run before,
    until the new one reports. What somebody else's SQL wrote there stands in `text`, and the rest is None.
    """

    fraction: float | None = None
    text: str | None = field(default=None, repr=False)
    attempt: int | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """One job in a list. `error` is the beginning of the last error's first line; `attempts` counts every start."""

    id: int
    kind: str
    queue: str
    status: JobStatus
    priority: int
    run_at: datetime
    attempts: int
    returned: int
    max_attempts: int
    leased_by: str | None
    lease_until: datetime | None
    cancel_requested_at: datetime | None
    idempotency_key: str | None
    reason: str | None
    error: str | None
    progress: JobProgress | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def counted_attempts(self) -> int:
        """Starts that count against `max_attempts`."""
        return self.attempts - self.returned


@dataclass(frozen=True, slots=True)
class JobError:
    """One failure of a job, as it was written down; None where somebody else's SQL wrote something else there."""

    attempt: int | None
    at: str | None
    verb: str | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails(JobSummary):
    """One job whole. `now` is the database's time of the read, `holds_key` whether its key guards it now.

    Its repr leaves out what applications put into it: reprs end up in logs.
    """

    now: datetime
    payload: Any = field(repr=False)
    payload_version: int
    expires_at: datetime | None
    key_scope: str | None
    holds_key: bool
    result: Any = field(repr=False)
    last_error: str | None
    errors: tuple[JobError, ...]
    trace_context: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """How a job ended. `result` is what a handler with `keep_result` returned, `reason` why it is dead or cancelled.

    `last_error` is the text of the last failure, also of a job that was done by a later attempt.
    """

    id: int
    kind: str
    status: JobStatus
    result: Any = field(repr=False)
    reason: str | None
    last_error: str | None = field(repr=False)
    finished_at: datetime

    @property
    def done(self) -> bool:
        """The job is done, neither dead nor cancelled."""
        return self.status is JobStatus.DONE


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, the newest first by id, and the database's time of the read.

    `before` is the id that the next page goes on before; None when there is nothing more. A page with fewer jobs than
    were asked for and a `before` has looked at as many as one call looks at: see `store.inspection`.
    """

    jobs: tuple[JobSummary, ...]
    now: datetime
    before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The numbers of one queue. Ready jobs are `due` or `delayed`; `expired` are running ones whose lease is past.

    `oldest_due` is how long the first due job has waited. `oldest_running` is how long ago the earliest of the running
    jobs fell due: it runs for at most that long, for no column keeps when a run began.
    """

    queue: str
    due: int = 0
    delayed: int = 0
    running: int = 0
    expired: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    oldest_due: timedelta | None = None
    oldest_running: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of all queues, by name, at the database's time `now`.

    `at_least` names finished statuses of which there are more than were counted: their numbers are lower bounds.
    """

    now: datetime
    queues: tuple[QueueStats, ...]
    at_least: frozenset[JobStatus]

    @property
    def total(self) -> QueueStats:
        """All queues together, under the name `total`."""
        sums: dict[str, Any] = {}
        for name in (one.name for one in fields(QueueStats) if one.name != "queue"):
            values = [value for queue in self.queues if (value := getattr(queue, name)) is not None]
            if name.startswith("oldest"):
                sums[name] = max(values, default=None)
            else:
                sums[name] = sum(values)
        return QueueStats(queue="total", **sums)
