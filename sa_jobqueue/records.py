"""Plain values that cross the layers: what is asked of the store and what it answers.

Frozen, free of sessions and connections, safe to pickle. No logic beyond reading their own fields. What is made for
every single job is a named tuple: making a frozen dataclass takes up to eight times as long. Not so with the three fields
of `Enqueued`, which applications get: as a tuple it would be an array in their JSON, and three values for a `%`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn
from uuid import UUID

from sa_jobqueue.states import JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

EnqueueOutcome = Literal["created", "existing", "replaced", "rescheduled", "running"]
OnConflict = Literal["existing", "replace", "reschedule", "raise"]
KeyScope = Literal["row", "unfinished"]

#: One claim of one job: its id and the token of the lease.
LeaseKey = tuple[int, UUID]

#: What an INSERT leaves to the table's own defaults.
DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_PAYLOAD_VERSION = 1
#: What a payload may take as JSON, unless its handler or its producer says otherwise.
DEFAULT_MAX_PAYLOAD_BYTES = 256 * 1024
#: Levels of objects and lists in a payload; Python's own limit for what it can read and walk is near 1,000.
MAX_PAYLOAD_DEPTH = 100
HIGHEST_PRIORITY, LOWEST_PRIORITY = 0, 9
PRIORITIES = LOWEST_PRIORITY - HIGHEST_PRIORITY + 1
MOST_ATTEMPTS = LAST_PAYLOAD_VERSION = 2_000_000_000
#: What the column `id` holds. No job has another id, and no driver could send one.
SMALLEST_ID, LARGEST_ID = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one enqueued job; outlives the session, expiry and commit.

    `outcome` is "created", or tells what was done about the job that already held the idempotency key, whose id is `id`:
    "existing" left it as it is, "replaced" and "rescheduled" changed it while it waited, "running" left it alone because
    it runs, so that this run may not see what the caller is about to commit. `status` is that of the job with this id: an
    existing one may well be dead. All of it is true once the transaction that enqueued it has committed.
    """

    id: int
    outcome: EnqueueOutcome
    status: JobStatus = JobStatus.READY

    @property
    def created(self) -> bool:
        return self.outcome == "created"

    def __repr__(self) -> str:
        told = "" if self.status == JobStatus.READY else f", status={self.status.value!r}"
        return f"Enqueued(id={self.id}, outcome={self.outcome!r}{told})"


class NewJob(NamedTuple):
    """One row to insert, checked and complete: the payload is JSON text, times are aware."""

    payload: str
    kind: str
    queue: str = DEFAULT_QUEUE
    payload_version: int = DEFAULT_PAYLOAD_VERSION
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    run_at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    key_scope: KeyScope | None = None
    #: What the key is good for within its scope, such as one hour: a part of the unique key.
    bucket: str | None = None
    #: The length of a bucket that the database's clock has yet to choose.
    period: timedelta | None = None
    on_conflict: OnConflict = "existing"
    trace_context: str | None = None

    @property
    def unique_key(self) -> str | None:
        """The value that the unique index guards."""
        return self.idempotency_key if self.bucket is None else f"{self.idempotency_key}@{self.bucket}"

    def __repr__(self) -> str:
        # Never the payload, for reprs end up in logs.
        return f"NewJob(kind={self.kind!r}, queue={self.queue!r}, unique_key={self.unique_key!r})"


class Inserted(NamedTuple):
    """The store's answer for one `NewJob`.

    `values` holds columns of the row by name: of a created one those that the database chose, of any other all but the
    large ones; of the second job with one key in the same call those of the first.
    """

    id: int
    outcome: EnqueueOutcome
    values: Mapping[str, Any]

    @property
    def created(self) -> bool:
        return self.outcome == "created"

    @property
    def told(self) -> Enqueued:
        """What the caller is told."""
        status = self.values.get("status")
        return Enqueued(self.id, self.outcome, JobStatus.READY if status is None else JobStatus(status))


class ClaimedJob(NamedTuple):
    """A job that this process owns until its lease ends: `token` proves the ownership.

    `attempts` counts starts, this one included; `returned` those given back. `expired` says that `expires_at` was
    past on the database's clock when the job was claimed. `size` is how many characters of JSON the payload has.
    """

    id: int
    token: UUID
    kind: str
    queue: str
    payload: Any
    payload_version: int
    priority: int
    attempts: int
    returned: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    idempotency_key: str | None
    expired: bool
    key_scope: KeyScope | None = None
    size: int = 0

    @property
    def counted_attempts(self) -> int:
        """Attempts that count against `max_attempts`: starts less those given back. At least 1."""
        return self.attempts - self.returned

    def __repr__(self) -> str:
        # Never the payload, for reprs end up in logs; nor the token.
        return f"ClaimedJob(id={self.id}, kind={self.kind!r}, queue={self.queue!r}, attempts={self.attempts})"


class Mark(NamedTuple):
    """A place in the order of a queue's jobs of one priority: by due time, then id."""

    run_at: datetime
    id: int


#: The marks of one queue, one for each priority from the first on; None is before all jobs.
Marks = Sequence[Mark | None]


class ClaimAnswer(NamedTuple):
    """What a claim took; `through` says that a queue whose quota was not filled has nothing else due behind its marks.

    But for rows that were locked.
    """

    jobs: list[ClaimedJob]
    through: bool


class Progress(NamedTuple):
    """How far a handler says that it is: a share from 0 to 1, a text, or both."""

    fraction: float | None
    text: str | None = None

    def __repr__(self) -> str:
        # Never the text, for reprs end up in logs.
        return f"Progress(fraction={self.fraction!r})"


class Settlement(NamedTuple):
    """One outcome to write, fenced by the token: `verb` is complete, retry, snooze, discard, release or abort.

    `delay` is for retry and snooze; `error` (text, at most 4 KiB of UTF-8) for retry and discard; `reason` for discard
    and abort; `result` (JSON text) for complete. `xid` is the transaction in which a completion of the same token may have
    landed instead.
    """

    id: int
    token: UUID
    verb: Verb
    delay: timedelta | None = None
    error: str | None = None
    reason: str | None = None
    result: str | None = None
    xid: int | None = None

    def __repr__(self) -> str:
        # Never what a handler returned or said, for reprs end up in logs.
        return f"Settlement(id={self.id}, verb={self.verb.value!r}, delay={self.delay!r})"


class Landing(StrEnum):
    """What a fenced write found: `landed`, or why it did not.

    busy: still ours, the row is locked by somebody else's transaction, try again. expired: still ours, the lease is
    past, renew and try again. lost: another owner or an operator has it. gone: there is no such row.
    """

    LANDED = "landed"
    BUSY = "busy"
    EXPIRED = "expired"
    LOST = "lost"
    GONE = "gone"


class Settled(NamedTuple):
    """The store's answer to one `Settlement`; `status` is the job's status after a landing, else None.

    `fault` tells why the database refused the settlement as it was given: a landed one was written in a reduced form,
    one that did not land is to be tried again. `completed` says that another verb was sent, and what has landed under the
    token is the completion that was in doubt.
    """

    id: int
    token: UUID
    landing: Landing
    status: JobStatus | None = None
    fault: str | None = None
    completed: bool = False


class Renewed(NamedTuple):
    """The store's answer for one held token; `cancel_requested` is what an operator asked for meanwhile."""

    id: int
    token: UUID
    landing: Landing
    cancel_requested: bool = False


class Waiting(NamedTuple):
    """The store's answer to a runner that begins to wait: how many others do, and the time until the next due job.

    `next_due` is None when no job of the runner's becomes due while it waits.
    """

    others: int
    next_due: timedelta | None


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    """A running job whose lease is past: what a rescue needs to decide its backoff."""

    id: int
    token: UUID
    kind: str
    queue: str
    attempts: int
    returned: int
    max_attempts: int
    leased_by: str | None

    @property
    def counted_attempts(self) -> int:
        """As of a ClaimedJob."""
        return self.attempts - self.returned


@dataclass(frozen=True, slots=True)
class Rescued:
    """A job taken back from a lost runner, and the status it has now."""

    id: int
    kind: str
    queue: str
    counted_attempts: int
    status: JobStatus
    leased_by: str | None


@dataclass(frozen=True, slots=True)
class PrunePosition:
    """Where in the order of finish the next batch begins: with what finished then, or right behind the job `id`."""

    finished_at: datetime
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """One batch of a prune: `count` jobs were deleted.

    `refused` counts those that the database keeps, `fault` tells why of the first of them. `more` says that the batch
    was full: go on from `position`, so that what was refused or locked is not tried again in every batch.
    """

    count: int
    refused: int = 0
    fault: str | None = None
    more: bool = False
    position: PrunePosition | None = None


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call of a registered handler, not yet enqueued: `handler.call(...)` makes it, `enqueue()` takes it.

    `payload` holds the arguments that were given; `priority` None leaves it to the table's default, `unique_by`,
    `key_scope` (which may be a Period as well) and `on_conflict` to `enqueue()`. `handler` is the one that made it, for
    tests that perform the call; it stays in its process, a pickled call has none.
    """

    kind: str
    payload: Any = field(repr=False)
    queue: str
    max_attempts: int
    priority: int | None
    payload_version: int
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES
    unique_by: tuple[str, ...] | None = None
    key_scope: object = None
    on_conflict: OnConflict | None = None
    handler: object = field(default=None, compare=False, repr=False)

    @property
    def _sa_instance_state(self) -> NoReturn:
        # What session.add() asks for: without an answer it says that this class is not mapped, and nothing of enqueue().
        raise TypeError(f"expected a Job from enqueue(), got a call of {self.kind!r}: wrap it in enqueue()")

    def __reduce__(self) -> tuple[type[HandlerCall], tuple[Any, ...]]:
        return HandlerCall, tuple(getattr(self, one.name) for one in fields(self) if one.name != "handler")


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """What became of one job that a person cancelled, redrove or rescheduled; true once the transaction has committed.

    `status` is the job's status after the call, None when there is no such job. `reason` tells why a job was left as it
    is; of a running job, whose cancellation can only be asked for, that it was.
    """

    id: int
    landed: bool
    status: JobStatus | None
    reason: str | None = None
