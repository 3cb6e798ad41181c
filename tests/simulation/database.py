"""The job table in memory: each verb as the design's table of verbs has it, atomic at the moment it lands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sa_jobqueue.records import Landing, Settled, Settlement
from sa_jobqueue.states import JobStatus, Verb

READY, RUNNING, DONE, DEAD, CANCELLED = JobStatus
Key = tuple[int, UUID]


@dataclass
class Row:
    """One job."""

    id: int
    queue: str
    run_at: float
    max_attempts: int
    status: JobStatus = READY
    attempts: int = 0
    returned: int = 0
    token: UUID | None = None
    lease_until: float = 0.0
    leased_by: str | None = None
    settled_token: UUID | None = None
    cancel_requested: bool = False
    locked_until: float = 0.0
    fenced_by: Transaction | None = None

    @property
    def exhausted(self) -> bool:
        return self.attempts - self.returned >= self.max_attempts


@dataclass(eq=False)
class Transaction:
    """A handler's own transaction from its fence on; it holds the row until it ends."""

    key: Key
    open: bool = True


class Database:
    """Rows, and what landed on them. `fenced` False leaves out the guard by token."""

    def __init__(
        self,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], None],
        *,
        fenced: bool = True,
    ) -> None:
        self.rows: dict[int, Row] = {}
        self.started_at = clock()
        self.down_until = 0.0
        self.epoch = 0
        self.landed: dict[Key, Verb] = {}
        self.completions: Counter[int] = Counter()
        self.snoozes: Counter[int] = Counter()
        self.rescued: list[tuple[float, str]] = []
        self.lapsed: list[tuple[float, int]] = []
        self.wrong: list[str] = []
        #: The claims whose handlers have begun a completion of their own, and what these have written.
        self.blocks: set[Key] = set()
        self.effects: Counter[int] = Counter()
        self._clock = clock
        self._call_at = call_at
        self._fenced = fenced

    def add(self, queue: str, run_at: float, max_attempts: int) -> None:
        job_id = len(self.rows) + 1
        self.rows[job_id] = Row(job_id, queue, run_at, max_attempts)

    def restart(self, until: float) -> None:
        """Every connection breaks, and nobody is let in before that time."""
        self.epoch += 1
        for row in self.rows.values():
            if row.fenced_by is not None:
                self.roll_back(row.fenced_by)
        self.down_until = self.started_at = until

    def claim(
        self,
        token: UUID,
        quotas: Mapping[str, int],
        lease: float,
        runner: str,
        behind: Mapping[str, tuple[float, int]],
    ) -> list[Row]:
        now, taken = self._clock(), []
        for queue, quota in quotas.items():
            first = behind.get(queue, (0.0, 0))
            due = [
                row
                for row in self.rows.values()
                if row.status is READY
                and row.queue == queue
                and first < (row.run_at, row.id)
                and row.run_at <= now
                and not self._locked(row)
            ]
            for row in sorted(due, key=lambda row: (row.run_at, row.id))[:quota]:
                row.status, row.token, row.leased_by = RUNNING, token, runner
                row.attempts += 1
                row.lease_until = now + lease
                taken.append(row)
        return taken

    def release_claim(self, token: UUID) -> None:
        for row in self.rows.values():
            if row.status is RUNNING and row.token == token and not self._locked(row):
                row.returned += row.returned < row.max_attempts
                self._let_go(row, Verb.RELEASE, token, dead=row.exhausted)

    def renew(self, held: Sequence[Key], lease: float) -> dict[Key, bool]:
        landed = {}
        for job_id, token in held:
            row = self.rows.get(job_id)
            if row is not None and row.token == token and not self._locked(row):
                self._note_lapse(row)
                row.lease_until = max(row.lease_until, self._clock() + lease)
                landed[job_id, token] = row.cancel_requested
        return landed

    def settle(self, batch: Sequence[Settlement], *, own_lock: bool = False) -> dict[Key, JobStatus]:
        landed = {}
        for one in batch:
            row = self.rows.get(one.id)
            if row is None or row.fenced_by is not None or (self._locked(row) and not own_lock):
                continue
            if row.token == one.token or not self._fenced:
                self._note_lapse(row)
                if one.verb is Verb.COMPLETE and (one.id, one.token) in self.blocks:
                    self.wrong.append(f"job {one.id} is completed past its handler's own transaction")
                if one.verb is Verb.COMPLETE and row.lease_until <= self._clock() and self._fenced:
                    continue
                self._settle(row, one)
                landed[one.id, one.token] = row.status
        return landed

    def fence(self, key: Key, lease: float) -> Transaction | None:
        """The fence lands, and the row is held until the transaction ends: by itself after one lease without a word."""
        row = self.rows[key[0]]
        if self._locked(row) or row.token != key[1] or row.lease_until <= self._clock():
            return None
        row.fenced_by = transaction = Transaction(key)
        self._call_at(self._clock() + lease, lambda: self.roll_back(transaction))
        return transaction

    def commit(self, transaction: Transaction) -> bool:
        """The handler's writes and the completion, at once; False when the server has ended the transaction."""
        if not transaction.open:
            return False
        job_id, token = transaction.key
        self.roll_back(transaction)
        self.effects[job_id] += 1
        self._settle(self.rows[job_id], Settlement(job_id, token, Verb.COMPLETE))
        return True

    def roll_back(self, transaction: Transaction) -> None:
        transaction.open = False
        row = self.rows[transaction.key[0]]
        if row.fenced_by is transaction:
            row.fenced_by = None

    def is_locked(self, job_id: int) -> bool:
        return self._locked(self.rows[job_id])

    def missed(self, key: Key, verb: Verb, *, again: bool) -> Settled:
        """Why a write left a row out, read afterwards."""
        row = self.rows.get(key[0])
        if row is None:
            return Settled(*key, Landing.GONE)
        if row.token == key[1]:
            past = verb is Verb.COMPLETE and row.lease_until <= self._clock()
            return Settled(*key, Landing.EXPIRED if past else Landing.BUSY)
        if not again or row.settled_token != key[1]:
            return Settled(*key, Landing.LOST)
        if row.status is DONE:
            return Settled(*key, Landing.LANDED, DONE, completed=verb is not Verb.COMPLETE)
        if verb is Verb.COMPLETE:
            return Settled(*key, Landing.LOST)
        return Settled(*key, Landing.LANDED, row.status)

    def expired(self, lease: float, margin: float) -> list[Row]:
        now = self._clock()
        if now <= self.started_at + lease:
            return []
        return [row for row in self.rows.values() if row.status is RUNNING and row.lease_until < now - margin]

    def rescue(self, leases: Sequence[tuple[int, UUID, float]], margin: float) -> list[Row]:
        now, taken = self._clock(), []
        for job_id, token, delay in leases:
            row = self.rows[job_id]
            if row.token == token and row.lease_until < now - margin and not self._locked(row):
                self.rescued.append((now, row.leased_by or ""))
                settled = row.settled_token
                self._let_go(row, Verb.RESCUE, token, dead=row.exhausted, run_at=now + delay)
                row.settled_token = settled
                taken.append(row)
        return taken

    def cancel(self, job_id: int) -> None:
        row = self.rows[job_id]
        if row.status in (READY, RUNNING):
            row.cancel_requested = True
            row.status = CANCELLED if row.status is READY else RUNNING

    def _locked(self, row: Row) -> bool:
        return row.locked_until > self._clock() or row.fenced_by is not None

    def _settle(self, row: Row, one: Settlement) -> None:
        delay = 0.0 if one.delay is None else one.delay.total_seconds()
        match one.verb:
            case Verb.COMPLETE:
                self._note(row, one.verb, one.token)
                self.completions[row.id] += 1
                row.status, row.token, row.settled_token = DONE, None, one.token
            case Verb.RETRY:
                self._let_go(row, one.verb, one.token, dead=row.exhausted, run_at=self._clock() + delay)
            case Verb.SNOOZE:
                self.snoozes[row.id] += 1
                row.returned += 1
                self._let_go(row, one.verb, one.token, run_at=self._clock() + delay)
            case Verb.RELEASE:
                row.returned += 1
                self._let_go(row, one.verb, one.token)
            case Verb.DISCARD:
                self._let_go(row, one.verb, one.token, dead=True)
            case Verb.ABORT:
                self._note(row, one.verb, one.token)
                row.status, row.token, row.settled_token = CANCELLED, None, one.token
            case verb:
                raise LookupError(verb)

    def _let_go(
        self, row: Row, verb: Verb, token: UUID, *, dead: bool = False, run_at: float | None = None
    ) -> None:
        self._note(row, verb, token)
        row.status = CANCELLED if row.cancel_requested else DEAD if dead else READY
        row.run_at = row.run_at if run_at is None else run_at
        row.token, row.settled_token = None, token

    def _note_lapse(self, row: Row) -> None:
        """The holder comes, and its lease has run out."""
        if row.status is RUNNING and row.lease_until <= self._clock():
            self.lapsed.append((self._clock(), row.id))

    def _note(self, row: Row, verb: Verb, token: UUID) -> None:
        """Every end of a lease is noted, and judged apart from the guards above."""
        if row.status is not RUNNING or row.token != token:
            self.wrong.append(
                f"{verb} of job {row.id} landed although it was {row.status} under another token"
            )
        if (row.id, token) in self.landed:
            self.wrong.append(
                f"{verb} of job {row.id} landed after {self.landed[row.id, token]} of the same claim"
            )
        self.landed[row.id, token] = verb
