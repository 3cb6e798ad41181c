"""The job table in memory: each verb as the design's table of verbs has it, atomic at the moment it lands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sa_jobqueue.records import Landing, Progress, Settled, Settlement
from sa_jobqueue.states import TERMINAL, JobStatus, Verb

if TYPE_CHECKING:
    from tests.simulation.checks import Checks
    from tests.simulation.ledger import Key
    from tests.simulation.world import World

READY, RUNNING, DONE, DEAD, CANCELLED = JobStatus


def due(seconds: float) -> float:
    """A due time as the table holds it, in whole microseconds: marks are compared with it."""
    return round(seconds, 6)


@dataclass(slots=True)
class Row:
    """One job.

    `visible_at` is when it was last committed as ready, `told` whether that was notified. `referenced`: an application's foreign key keeps it from being deleted. `poisoned`: whoever is sent it breaks.
    """

    id: int
    queue: str
    run_at: float
    max_attempts: int
    expires_at: float | None = None
    poisoned: bool = False
    referenced: bool = False
    status: JobStatus = READY
    attempts: int = 0
    returned: int = 0
    token: UUID | None = None
    lease_until: float = 0.0
    leased_by: str | None = None
    settled_token: UUID | None = None
    cancel_requested: bool = False
    expired: bool = False
    progress: float | None = None
    visible_at: float = 0.0
    told: bool = False
    finished_at: float = 0.0
    locked_until: float = 0.0
    fenced_by: Transaction | None = None

    def __post_init__(self) -> None:
        self.run_at = due(self.run_at)

    @property
    def exhausted(self) -> bool:
        return self.attempts - self.returned >= self.max_attempts


@dataclass(eq=False, slots=True)
class Transaction:
    """A handler's own transaction from its fence on; it holds the row until it ends."""

    key: Key
    xid: int
    fenced_at: float
    status: str = "in progress"


class Database:
    """Rows, and what lands on them. `fenced` False leaves out the guard by token."""

    def __init__(self, world: World, checks: Checks, *, fenced: bool = True) -> None:
        self.rows: dict[int, Row] = {}
        self.pruned: dict[int, Row] = {}
        #: What a prune met locked: beside refused ones it may be a day until such a job is tried again.
        self.passed_over: set[int] = set()
        self.started_at = world.now
        self.down_until = 0.0
        self.epoch = 0
        self.transactions: dict[int, Transaction] = {}
        #: Who says until when that it waits for jobs, and who listens: to be called with nothing.
        self.waiting: dict[str, float] = {}
        self.ears: list[Callable[[], None]] = []
        #: Behind a pooler nobody hears anything.
        self.pooled = False
        self.statements = 0
        self._world = world
        self._checks = checks
        self._fenced = fenced
        self._ids = count(1)
        self._xids = count(1)

    # What applications and people do.

    def insert(self, row: Row, *, commit_in: float = 0.0, heard: bool = True) -> None:
        """A transaction adds a job and commits later; who waits at the insert is told at the commit, if that is `heard`."""
        notifies = heard and any(until > self._world.now for until in self.waiting.values())

        def commit() -> None:
            row.visible_at = self._world.now
            row.told = notifies and bool(self.ears)
            self.rows[row.id] = row
            for ear in [*self.ears] if notifies else ():
                ear()

        self._world.call_at(self._world.now + commit_in, commit)

    def new_id(self) -> int:
        return next(self._ids)

    def cancel(self, job_id: int) -> bool:
        """True for what is cancelled, or will be unless it is done before."""
        row = self.rows.get(job_id)
        if row is None or row.status not in (READY, RUNNING):
            return False
        if row.status is READY:
            self._checks.cancelled_by_a_person(row)
            self._end(row, CANCELLED)
        else:
            row.cancel_requested = True
            self._checks.cancellation_promised(row)
        return True

    def redrive(self, job_id: int) -> None:
        row = self.rows.get(job_id)
        if row is None or row.status not in (DEAD, CANCELLED):
            return
        now = self._world.now
        row.status, row.token, row.expired = READY, None, False
        row.returned, row.cancel_requested = row.attempts, False
        row.run_at = row.visible_at = due(max(row.run_at, now))
        row.told = False
        if row.expires_at is not None and row.expires_at <= now:
            row.expires_at = None
        self._checks.redriven(row)

    def reschedule(self, job_id: int, run_at: float) -> None:
        row = self.rows.get(job_id)
        if row is not None and row.status is READY and (row.expires_at is None or row.expires_at > run_at):
            row.run_at, row.visible_at, row.told = due(run_at), self._world.now, False

    def prune(self, status: JobStatus, age: float, limit: int, after: tuple[float, int]) -> tuple[Any, ...]:
        """Deleted, refused, where it came to, whether the batch was full."""
        old = sorted((row.finished_at, row.id) for row in self.rows.values() if row.status is status)
        wanted = [place for place in old if place > after and place[0] < self._world.now - age]
        self.passed_over.update(place[1] for place in wanted if self.is_locked(place[1]))
        taken = [place for place in wanted if not self.is_locked(place[1])][:limit]
        refused = 0
        for _, job_id in taken:
            if self.rows[job_id].referenced:
                refused += 1
            else:
                self._checks.pruned(self.rows[job_id])
                self.pruned[job_id] = self.rows.pop(job_id)
        return len(taken) - refused, refused, taken[-1] if taken else after, len(taken) == limit

    # What happens to the server.

    def restart(self, until: float) -> None:
        """Every connection breaks, and nobody is let in before that time."""
        self.epoch += 1
        for transaction in self.transactions.values():
            self.roll_back(transaction)
        self.waiting.clear()
        ears, self.ears = self.ears, []
        for ear in ears:
            ear()
        self.down_until = self.started_at = until

    # What runners send.

    def claim(
        self,
        token: UUID,
        quotas: Mapping[str, int],
        lease: float,
        runner: str,
        behind: Mapping[str, tuple[float, int]],
        owner: Any,
    ) -> list[Row]:
        now = self._world.now
        taken: list[Row] = []
        self._checks.claim_lands(token)
        waiting = [row for row in self.rows.values() if row.status is READY and row.run_at <= now]
        if not waiting:
            return taken
        waiting.sort(key=lambda row: (row.run_at, row.id))
        for queue, quota in quotas.items():
            first = behind.get(queue, (0.0, 0))
            free = [
                row
                for row in waiting
                if row.queue == queue and first < (row.run_at, row.id) and not self._locked(row)
            ]
            for row in free[:quota]:
                row.status, row.token, row.leased_by = RUNNING, token, runner
                row.attempts += 1
                row.lease_until = now + lease
                row.expired = row.expires_at is not None and row.expires_at <= now
                self._checks.claimed(row, token, owner)
                taken.append(row)
        return taken

    def release_claim(self, token: UUID) -> None:
        for row in self.rows.values():
            if row.status is RUNNING and row.token == token and not self._locked(row):
                row.returned += row.returned < row.max_attempts
                self._let_go(row, Verb.RELEASE, token, dead=row.exhausted)

    def renew(self, held: Iterable[Key], lease: float) -> dict[Key, bool]:
        landed = {}
        for job_id, token in held:
            row = self.rows.get(job_id)
            if row is not None and row.token == token and not self._locked(row):
                self._checks.holder_comes(row)
                row.lease_until = max(row.lease_until, self._world.now + lease)
                landed[job_id, token] = row.cancel_requested
        return landed

    def report(self, reports: Iterable[tuple[Key, Progress]]) -> dict[Key, bool]:
        landed = {}
        for (job_id, token), progress in reports:
            row = self.rows.get(job_id)
            if row is not None and (row.token == token or not self._fenced) and not self._locked(row):
                self._checks.reports(row, token)
                row.progress = progress.fraction
                landed[job_id, token] = row.cancel_requested
        return landed

    def settle(self, batch: Iterable[Settlement], *, own_lock: bool = False) -> dict[Key, JobStatus]:
        landed = {}
        for one in batch:
            row = self.rows.get(one.id)
            if row is None or row.fenced_by is not None or (self._locked(row) and not own_lock):
                continue
            if row.token == one.token or not self._fenced:
                self._checks.holder_comes(row)
                if one.verb is Verb.COMPLETE and row.lease_until <= self._world.now and self._fenced:
                    continue
                self._settle(row, one)
                landed[one.id, one.token] = row.status
        return landed

    def fence(self, key: Key, lease: float, began_at: float) -> Transaction | None:
        """The fence lands, and the row is held until the transaction ends: by itself after one lease without a word."""
        row = self.rows.get(key[0])
        if row is None or self._locked(row) or row.token != key[1] or not self._in_time(row, began_at):
            return None
        transaction = Transaction(key, next(self._xids), self._world.now)
        self.transactions[transaction.xid] = row.fenced_by = transaction
        self._checks.fenced(row, key)
        self._end_when_silent(transaction, lease)
        return transaction

    def commit(self, transaction: Transaction) -> bool:
        """The handler's writes and the completion, at once; False when the server has ended the transaction."""
        if transaction.status != "in progress":
            return False
        job_id, token = transaction.key
        transaction.status = "committed"
        row = self.rows[job_id]
        row.fenced_by = None
        self._checks.has_effects(transaction.key)
        self._settle(row, Settlement(job_id, token, Verb.COMPLETE), by_fence=True)
        return True

    def roll_back(self, transaction: Transaction) -> None:
        if transaction.status == "in progress":
            transaction.status = "aborted"
            row = self.rows.get(transaction.key[0])
            if row is not None and row.fenced_by is transaction:
                row.fenced_by = None

    def missed(self, key: Key, verb: Verb, *, again: bool, xid: int | None = None) -> Settled:
        """Why a write left a row out, read afterwards."""
        row = self.rows.get(key[0])
        if row is None:
            return self._missed_gone(key, xid)
        if row.token == key[1]:
            past = verb is Verb.COMPLETE and row.lease_until <= self._world.now
            return Settled(*key, Landing.EXPIRED if past else Landing.BUSY)
        if not again or row.settled_token != key[1]:
            return Settled(*key, Landing.LOST)
        if row.status is DONE:
            return Settled(*key, Landing.LANDED, DONE, completed=verb is not Verb.COMPLETE)
        if verb is Verb.COMPLETE:
            return Settled(*key, Landing.LOST)
        return Settled(*key, Landing.LANDED, row.status)

    def expired(self, lease: float, margin: float) -> list[Row]:
        now = self._world.now
        if now <= self.started_at + lease:
            return []
        return [row for row in self.rows.values() if row.status is RUNNING and row.lease_until < now - margin]

    def rescue(self, leases: Iterable[tuple[int, UUID, float]], margin: float) -> list[Row]:
        now, taken = self._world.now, []
        for job_id, token, delay in leases:
            row = self.rows.get(job_id)
            if row is None or row.token != token or row.lease_until >= now - margin or self._locked(row):
                continue
            self._checks.rescued(row, token)
            self._let_go(row, Verb.RESCUE, None, dead=row.exhausted, run_at=now + delay)
            taken.append(row)
        return taken

    def wait_for_jobs(self, runner: str, queues: Iterable[str], wait: float) -> tuple[int, float | None]:
        now = self._world.now
        if self.waiting.get(runner, 0.0) - now < wait / 2:
            self.waiting[runner] = now + wait
        others = sum(until > now for name, until in self.waiting.items() if name != runner)
        times = [
            row.run_at - now for row in self.rows.values() if row.status is READY and row.queue in queues
        ]
        return others, min((seconds for seconds in times if 0 < seconds <= wait), default=None)

    def hold(self, keys: Iterable[Key], until: float) -> None:
        """A statement that the server has begun, and whose client is gone, holds its rows until then."""
        for job_id, token in keys:
            row = self.rows.get(job_id)
            if row is not None and row.status is RUNNING and row.token == token:
                row.locked_until = max(row.locked_until, until)

    def is_locked(self, job_id: int) -> bool:
        row = self.rows.get(job_id)
        return row is not None and self._locked(row)

    def _locked(self, row: Row) -> bool:
        return row.fenced_by is not None or row.locked_until > self._world.now

    def _in_time(self, row: Row, _began_at: float) -> bool:
        """By the clock that goes on within a transaction."""
        return row.lease_until > self._world.now

    def _end_when_silent(self, transaction: Transaction, lease: float) -> None:
        self._world.call_at(self._world.now + lease, lambda: self.roll_back(transaction))

    def _missed_gone(self, key: Key, xid: int | None) -> Settled:
        """There is no row any more; the transaction of a completion tells what it was."""
        status = None if xid is None else self.transactions[xid].status
        if status == "committed":
            return Settled(*key, Landing.LANDED, DONE, completed=True)
        return Settled(*key, Landing.BUSY if status == "in progress" else Landing.GONE)

    def _settle(self, row: Row, one: Settlement, *, by_fence: bool = False) -> None:
        later = self._world.now + (0.0 if one.delay is None else one.delay.total_seconds())
        match one.verb:
            case Verb.COMPLETE:
                self._checks.lands(row, one.verb, one.token, by_fence=by_fence)
                self._end(row, DONE, one.token)
            case Verb.RETRY:
                self._let_go(row, one.verb, one.token, dead=row.exhausted, run_at=later)
            case Verb.SNOOZE:
                row.returned += 1
                self._let_go(row, one.verb, one.token, run_at=later)
            case Verb.RELEASE:
                row.returned += 1
                self._let_go(row, one.verb, one.token)
            case Verb.DISCARD:
                self._let_go(row, one.verb, one.token, dead=True)
            case Verb.ABORT:
                self._checks.lands(row, one.verb, one.token)
                self._end(row, CANCELLED, one.token)
            case verb:
                raise LookupError(verb)

    def _let_go(
        self, row: Row, verb: Verb, token: UUID | None, *, dead: bool = False, run_at: float | None = None
    ) -> None:
        self._checks.lands(row, verb, row.token if token is None else token)
        if row.cancel_requested or dead:
            self._end(row, CANCELLED if row.cancel_requested else DEAD, token)
            return
        row.status, row.token = READY, None
        row.settled_token = token or row.settled_token
        row.run_at = row.run_at if run_at is None else due(run_at)
        row.visible_at = self._world.now
        self._checks.rests(row)

    def _end(self, row: Row, status: JobStatus, token: UUID | None = None) -> None:
        assert status in TERMINAL
        row.status, row.token, row.finished_at = status, None, self._world.now
        row.settled_token = token or row.settled_token
        self._checks.rests(row)
