"""The job table in memory: every verb with the sentence that the design has for it, and nothing else.

Written by hand from the table of verbs and the rules of reconciliation, so that a wrong guard, a wrong CASE or a wrong
line in `TRANSITIONS` is found by comparison. Statuses and verbs are plain words here for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.model.rows import TERMINAL, Answer, Job, Lock, Settlement

KEPT_ERRORS = 10


class Model:
    """All rows, as whoever acts sees them, and the one clock."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.jobs: dict[int, Job] = {}
        #: Rows that another transaction than the acting one holds.
        self.locks: dict[int, Lock] = {}
        #: What was settled under each token, and the status that this gave.
        self.landed: dict[tuple[int, UUID], Answer] = {}
        #: What became of transactions with a completion in them.
        self.fates: dict[int, str] = {}
        self._taken: set[int] = set()
        self._written: dict[int, Job] = {}
        self._landed_inside: dict[tuple[int, UUID], Answer] = {}

    # --- entry

    def holder(self, key: str | None) -> int | None:
        """Which job holds the key."""
        return next((job.id for job in self.jobs.values() if key is not None and job.unique_key == key), None)

    def enqueue(self, job_id: int, *, key: str | None = None, scope: str = "row", **columns: Any) -> None:
        """· → ready, if nobody holds the unique_key."""
        assert self.holder(key) is None
        keys = {"idempotency_key": key, "key_scope": scope, "unique_key": key} if key is not None else {}
        times = {"run_at": self.now, "created_at": self.now, "updated_at": self.now}
        self.jobs[job_id] = Job(id=job_id, **(times | keys | columns))

    # --- the runner

    def claim(
        self, token: UUID, quotas: Mapping[str, int], kinds: Sequence[str], lease: timedelta, runner: str
    ) -> list[Job]:
        """ready → running: due, of these kinds, from each queue at most its quota, by priority, due time and id.

        SKIP LOCKED. A fresh token; attempts are raised at the claim.
        """
        taken = []
        for queue, quota in quotas.items():
            due = [
                job
                for job in self.jobs.values()
                if (job.status, job.queue) == ("ready", queue) and job.kind in kinds
                if job.run_at <= self.now and self.locks.get(job.id) != "row"
            ]
            taken += sorted(due, key=lambda job: (job.priority, job.run_at, job.id))[:quota]
        for job in taken:
            self._touch(job)
            job.status, job.leased_by = "running", runner
            job.lease_token, job.lease_until = token, self.now + lease
            job.attempts += 1
        return taken

    def renew(self, key: tuple[int, UUID], lease: timedelta) -> bool | None:
        """running → running, by token, the lease past or not; never shortened. Tells the request to cancel."""
        if (job := self._mine(*key)) is None:
            return None
        self._touch(job)
        job.lease_until = max(job.lease_until or self.now, self.now + lease)
        return job.cancel_requested_at is not None

    def report(self, key: tuple[int, UUID], fraction: float | None, said: str | None) -> bool | None:
        """The progress of a running job, by token; tells the request to cancel."""
        if (job := self._mine(*key)) is None:
            return None
        self._touch(job)
        job.progress = {"fraction": fraction, "text": said, "attempt": job.attempt, "at": self._stamp()}
        return job.cancel_requested_at is not None

    def complete(self, one: Settlement) -> bool:
        """running → done. Token and lease not expired. Wins over a request to cancel."""
        job = self._mine(one.id, one.token, lambda job: not self._past(job))
        if job is None:
            return False
        job.result = one.result
        self._finish(job, "done", None)
        return self._settled(job, one)

    def fence(self, one: Settlement) -> bool:
        """The same in the handler's own transaction: the lease is looked at when the row is held, and it stays held."""
        return self._mine(one.id, one.token) is not None and self.complete(one)

    def retry(self, one: Settlement) -> bool:
        """running → ready later, or → dead when exhausted. Token."""
        if (job := self._mine(one.id, one.token)) is None:
            return False
        self._fail(job, "retry", one.error)
        self._rest(job, dead="exhausted" if job.exhausted else None, ready_at=self._after(one.delay))
        return self._settled(job, one)

    def snooze(self, one: Settlement) -> bool:
        """running → ready later, returned + 1. Token."""
        if (job := self._mine(one.id, one.token)) is None:
            return False
        job.returned += 1
        self._rest(job, ready_at=self._after(one.delay))
        return self._settled(job, one)

    def discard(self, one: Settlement) -> bool:
        """running → dead, with a reason. Token."""
        if (job := self._mine(one.id, one.token)) is None:
            return False
        self._fail(job, "discard", one.error)
        self._rest(job, dead=one.reason or "discarded")
        return self._settled(job, one)

    def release(self, one: Settlement) -> bool:
        """running → ready, returned + 1: claimed, never begun, back at its old place. Token."""
        if (job := self._mine(one.id, one.token)) is None:
            return False
        job.returned += 1
        self._rest(job)
        return self._settled(job, one)

    def abort(self, one: Settlement) -> bool:
        """running → cancelled, after a request or past expires_at. Token."""
        if (job := self._mine(one.id, one.token)) is None:
            return False
        self._finish(job, "cancelled", one.reason or "cancelled")
        return self._settled(job, one)

    def release_claim(self, token: UUID) -> int:
        """A claim whose answer was lost: released by its token alone, returned + 1 only while returned < max_attempts."""
        held = [job for job in self.jobs.values() if self._mine(job.id, token)]
        for job in held:
            job.returned += job.returned < job.max_attempts
            self._rest(job, dead="exhausted" if job.exhausted else None)
            self._settled(job, Settlement(job.id, token, "release"))
        return len(held)

    def settle(self, batch: Sequence[Settlement], *, again: bool = False) -> list[Answer]:
        """Verb by verb, in the order in which they appear; what is left out of one is explained before the next."""
        answers: dict[tuple[int, UUID], Answer] = {}
        for verb in dict.fromkeys(one.verb for one in batch):
            group = [one for one in batch if one.verb == verb]
            landed = [one for one in group if getattr(self, verb)(one)]
            answers |= {
                one[:2]: Answer("landed", self.jobs[one.id].status)
                if one in landed
                else self.why_not(one, again=again)
                for one in group
            }
        return [answers[one[:2]] for one in batch]

    def why_not(self, one: Settlement, *, again: bool = False) -> Answer:
        """First try: token mine and lease past: expired, for a completion; token mine: busy; no row: gone; else lost.

        After a lost answer settled_token = mine means that *a* write of this token landed: status done → the
        completion, anything else → the other verb that was tried. Not mine any more → unknown. No row: the fate of the
        transaction tells, where the completion was in one.
        """
        if (job := self.jobs.get(one.id)) is None:
            fate = self.fates.get(one.xid or 0) if again else None
            return Answer("done", "done") if fate == "committed" else Answer("gone")
        if job.lease_token == one.token:
            return Answer("expired" if one.verb == "complete" and self._past(job) else "busy")
        if not again:
            return Answer("lost")
        if job.settled_token != one.token:
            return Answer("unknown")
        if job.status == "done":
            return Answer("done", "done")
        return Answer("lost") if one.verb == "complete" else Answer("landed", self.landed[one[:2]].status)

    # --- maintenance

    def expired(self, margin: timedelta, limit: int) -> list[Job]:
        """lease_until < now - margin, the longest past first."""
        past = [job for job in self.jobs.values() if self._abandoned(job, margin)]
        return sorted(past, key=lambda job: (job.lease_until, job.id))[:limit]

    def rescue(self, key: tuple[int, UUID], delay: timedelta, margin: timedelta) -> str | None:
        """running → ready with backoff, → dead when exhausted, → cancelled when requested. The lease past by the margin.

        Leaves settled_token alone.
        """
        if (job := self._mine(*key, lambda job: self._abandoned(job, margin))) is None:
            return None
        self._fail(job, "rescue", f"runner {job.leased_by} was lost (lease expired)")
        self._rest(job, dead="exhausted" if job.exhausted else None, ready_at=self.now + delay)
        return job.status

    def prunable(self, status: str, age: timedelta) -> list[Job]:
        """terminal → deleted, by age, the longest finished first. Rows that anybody has locked are skipped."""
        assert status in TERMINAL
        old = [
            job
            for job in self.jobs.values()
            if job.status == status and job.finished_at is not None and job.finished_at < self.now - age
            if job.id not in self.locks
        ]
        return sorted(old, key=lambda job: job.finished_at or self.now)

    # --- people

    def cancel(self, job_id: int) -> tuple[bool, str | None]:
        """ready → cancelled; running: sets the request. Everything else stays."""
        if (job := self._named(job_id)) is None:
            return False, None
        if job.status == "ready":
            self._finish(job, "cancelled", "cancelled")
        elif job.status == "running":
            self._touch(job)
            job.cancel_requested_at = job.cancel_requested_at or self.now
        else:
            return False, job.status
        return True, job.status

    def redrive(self, job_id: int) -> tuple[bool, str | None, str | None]:
        """dead, cancelled → ready: a new budget (returned = attempts), clears the cancel request and a past expires_at.

        Takes the key again; the loser stays with "key held by job N".
        """
        if (job := self._named(job_id)) is None:
            return False, None, "no such job"
        if job.status not in ("dead", "cancelled"):
            return False, job.status, f"the job is {job.status}, neither dead nor cancelled"
        self._touch(job)
        if (holder := self.holder(job.idempotency_key)) not in (None, job_id):
            job.reason = f"key held by job {holder}"
            return False, job.status, job.reason
        job.status, job.reason, job.finished_at, job.cancel_requested_at = "ready", None, None, None
        job.returned, job.unique_key = job.attempts, job.idempotency_key
        job.run_at = max(job.run_at, self.now)
        if job.expires_at is not None and job.expires_at <= self.now:
            job.expires_at = None
        return True, "ready", None

    def reschedule(
        self, job_id: int, *, run_at: datetime | None, priority: int | None
    ) -> tuple[bool, str | None]:
        """ready → ready, other run_at or priority; never to a time at which the job has expired."""
        if (job := self._named(job_id)) is None:
            return False, None
        too_late = run_at is not None and job.expires_at is not None and job.expires_at <= run_at
        if job.status != "ready" or too_late:
            return False, job.status
        self._touch(job)
        job.run_at = run_at or job.run_at
        job.priority = job.priority if priority is None else priority
        return True, "ready"

    # --- another transaction

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is done meanwhile is done in the other transaction: it holds those rows, and nobody sees what it wrote."""
        outside = self.jobs, self.locks, self.landed
        self.jobs = {job_id: copy(job) for job_id, job in (self.jobs | self._written).items()}
        self.locks, self.landed, self._taken = {}, self.landed | self._landed_inside, set()
        try:
            yield
        finally:
            self._written |= {job_id: self.jobs[job_id] for job_id in self._taken}
            self._landed_inside = self.landed
            self.jobs, self.locks, self.landed = outside
            self.locks |= dict.fromkeys(self._taken, "row")

    def end(self, *, commit: bool) -> None:
        """The other transaction ends: what it wrote is there at once, or never was."""
        if commit:
            self.jobs |= self._written
            self.landed |= self._landed_inside
        self._written, self._landed_inside, self.locks = {}, {}, {}

    def lock(self, job_id: int, strength: Lock) -> None:
        """The other transaction holds the row; with KEY SHARE as a foreign key does, which stops a prune alone."""
        if self.locks.get(job_id) != "row" and job_id in self.jobs:
            self.locks[job_id] = strength

    # --- pieces

    def _mine(self, job_id: int, token: UUID, guard: Callable[[Job], bool] = lambda _: True) -> Job | None:
        """The guard is id + token, and what the verb adds; a row that another transaction holds is passed over."""
        job = self.jobs.get(job_id)
        if job is None or job.lease_token != token or self.locks.get(job_id) == "row" or not guard(job):
            return None
        self._taken.add(job_id)
        return job

    def _named(self, job_id: int) -> Job | None:
        assert self.locks.get(job_id) != "row", "a person's verb would wait"
        self._taken.add(job_id)
        return self.jobs.get(job_id)

    def _past(self, job: Job) -> bool:
        return job.lease_until is not None and job.lease_until <= self.now

    def _abandoned(self, job: Job, margin: timedelta) -> bool:
        return job.lease_until is not None and job.lease_until < self.now - margin

    def _touch(self, job: Job) -> None:
        self._taken.add(job.id)
        job.updated_at = self.now

    def _after(self, delay: timedelta | None) -> datetime:
        return self.now + (delay or timedelta(0))

    def _stamp(self) -> str:
        return f"{self.now:%Y-%m-%dT%H:%M:%S.%fZ}"

    def _fail(self, job: Job, verb: str, error: str | None) -> None:
        """last_error and the last errors, each with its attempt, time and verb."""
        if error is not None:
            entry = {"attempt": job.attempt, "at": self._stamp(), "verb": verb, "error": error}
            job.last_error, job.errors = error, (*job.errors, entry)[-KEPT_ERRORS:]

    def _rest(self, job: Job, *, dead: str | None = None, ready_at: datetime | None = None) -> None:
        """Retry, snooze, discard, release, rescue, also when exhausted, go to cancelled once that was requested."""
        if job.cancel_requested_at is not None:
            self._finish(job, "cancelled", "cancelled")
        elif dead is not None:
            self._finish(job, "dead", dead)
        else:
            self._end_lease(job)
            job.status, job.run_at = "ready", ready_at or job.run_at

    def _finish(self, job: Job, status: str, reason: str | None) -> None:
        """Terminal ⇔ finished_at; scope unfinished clears the unique_key in the statement that finishes the job."""
        self._end_lease(job)
        job.status, job.reason, job.finished_at = status, reason, self.now
        if job.key_scope == "unfinished":
            job.unique_key = None

    def _end_lease(self, job: Job) -> None:
        self._touch(job)
        job.lease_token = job.lease_until = job.leased_by = None

    def _settled(self, job: Job, one: Settlement) -> bool:
        """settled_token: written by complete, retry, snooze, discard, release, abort with their own token."""
        assert one[:2] not in self.landed, "two outcomes of one token"
        self.landed[one[:2]] = Answer(one.verb, job.status)
        job.settled_token = one.token
        return True
