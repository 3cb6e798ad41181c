"""What must be true after any run, judged by what the database has noted; it knows nothing of the library's own words.

A *hold* is one ownership of one job: from the claim to whatever ended it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import namedtuple_row

from tests.crash_points.database import UNKNOWN

COMPLETING = ("block", "block-async", "join", "join-async", "block-fails")
#: What each kind must come to; a job that says nothing else is done.
_ENDS = {"discard": "dead", "fail": "dead", "cancel": "cancelled", "cancel-async": "cancelled"}
_LEAVES: dict[str | None, set[str | None]] = {
    None: {"ready"},
    "ready": {"running"},
    "running": {"ready", "done", "dead", "cancelled"},
    "done": {None},
    "dead": {None},
    "cancelled": {None},
}


@dataclass
class Hold:
    """`end` is the transition that ended it."""

    claim: Any
    end: Any = None

    @property
    def settled(self) -> bool:
        """By its own owner, who leaves the token; else by a rescue."""
        return self.end.settled_token == self.claim.new_token

    @property
    def given_back(self) -> bool:
        return bool(self.end.returned > self.end.old_returned)


def audit(connection: Connection[Any], *, living: str | None, told: Counter[int] | None = None) -> list[str]:
    """Everything that is wrong. `living` is a runner that never died nor stopped, so that nobody may take its jobs.

    `told` is how often it has said of each job that it has come to rest.
    """
    history = defaultdict(list)
    for change in _rows(connection, "SELECT * FROM transitions ORDER BY id"):
        history[change.job_id].append(change)
    rows = {row.id: row for row in _rows(connection, "SELECT * FROM jobqueue_jobs")}
    starts = defaultdict(list)
    for start in _rows(connection, "SELECT * FROM starts ORDER BY id"):
        starts[start.job_id].append(start)
    effects = Counter(row.job_id for row in _rows(connection, "SELECT * FROM effects"))
    follow_ups = Counter(row.payload["parent"] for row in rows.values() if row.kind == "follow-up")
    wrong: list[str] = []
    tokens: dict[Any, str] = {}
    for job_id, changes in sorted(history.items()):
        job = _Job(job_id, changes, rows.get(job_id), starts[job_id])
        wrong += [f"job {job_id} ({changes[0].kind}): {what}" for what in job.wrong(living)]
        done = job.status == "done" and job.kind in COMPLETING
        for name, counts in (("effects", effects), ("follow-ups", follow_ups)):
            if counts[job_id] != int(done):
                wrong.append(f"job {job_id} ({job.kind}) is {job.status} and has {counts[job_id]} {name}")
        for hold in job.holds:
            if (
                hold.claim.old_status
                and tokens.setdefault(hold.claim.new_token, hold.claim.xid) != hold.claim.xid
            ):
                wrong.append(f"job {job_id} ({job.kind}): another claim had the same token")
        if told is not None and job.ended_by(living) and told[job_id] != 1:
            wrong.append(
                f"job {job_id} ({job.kind}) is {job.status}, which {living} has told {told[job_id]} times"
            )
    if unknown := set(rows) - set(history):
        wrong.append(f"jobs that nobody has seen come: {unknown}")
    return wrong


def told_by(runner: str, log: str) -> Counter[int]:
    """How often the runner's events say of each job that it has come to rest."""
    ends = rf"^\S+ {runner} JobSettled\(job_id=(\d+),.*status=<JobStatus\.(?:DONE|DEAD|CANCELLED):"
    return Counter(int(job_id) for job_id in re.findall(ends, log, re.MULTILINE))


def shown(connection: Connection[Any]) -> str:
    """All that was noted, for people."""
    lines: list[str] = []
    for table in ("transitions", "starts", "effects"):
        rows = connection.execute(f"SELECT * FROM {table} ORDER BY 1".encode())
        lines += [f"  -- {table}", *("  " + " ".join(map(str, row)) for row in rows)]
    return "\n".join(lines)


class _Job:
    def __init__(self, job_id: int, changes: Sequence[Any], row: Any, starts: Sequence[Any]) -> None:
        self.id = job_id
        self.kind = changes[0].kind
        self.changes = changes
        self.row = row
        self.starts = starts
        self.planted = changes[0].new_status != "ready"
        self.status = changes[-1].new_status
        self.holds: list[Hold] = []
        for change in changes:
            if change.new_status == "running" and change.old_token != change.new_token:
                self.holds.append(Hold(change))
            elif change.old_status == "running" and self.holds:
                self.holds[-1].end = change

    def ended_by(self, runner: str | None) -> bool:
        """It came to rest by a word of this runner on a job that it owned."""
        if self.status is None or not self.holds or self.holds[-1].end is not self.changes[-1]:
            return False
        last = self.holds[-1]
        return last.settled and last.claim.leased_by == runner and self.status != "ready"

    def wrong(self, living: str | None) -> Iterator[str]:
        yield from self._chain()
        yield from self._end()
        for hold in self.holds:
            yield from self._hold(hold, living)
        yield from self._attempts(living)

    def _chain(self) -> Iterator[str]:
        before: str | None = None
        for change in self.changes:
            if change.old_status != before:
                yield f"was {before} and becomes {change.new_status} from {change.old_status}"
            inserted = before is None
            if not inserted and change.new_status not in _LEAVES[before]:
                yield f"goes from {before} to {change.new_status}"
            before = change.new_status
        if sum(change.new_status == "done" and change.old_status == "running" for change in self.changes) > 1:
            yield "was completed more than once"

    def _end(self) -> Iterator[str]:
        last = self.changes[-1]
        if self.kind == UNKNOWN:
            if self.status != "ready" or last.attempts or self.starts:
                yield f"has no handler, and is {self.status} after {last.attempts} attempts"
            return
        if self.status is None:
            if not self.planted or self.changes[-1].old_status not in ("done", "dead", "cancelled"):
                yield "is gone"
            return
        if self.row is None or self.row.status != self.status:
            yield f"is {self.row and self.row.status}, and became {self.status}"
            return
        if self.row.queue == "unserved":
            return
        if self.status != self._expected():
            yield f"ends {self.status} ({self.row.reason}), expected {self._expected()}"
        tells = self.kind in COMPLETING or self.kind.startswith("return")
        if self.status == "done" and self.row.result != ({"job": self.id} if tells else None):
            yield f"has the result {self.row.result}"
        if self.status == "done" and not any(
            start.runner == self.holds[-1].claim.leased_by for start in self.starts
        ):
            yield f"was completed by {self.holds[-1].claim.leased_by}, which never started it"

    def _expected(self) -> str:
        first = self.changes[0]
        if self.row.expires_at is not None or (self.planted and first.cancel_requested):
            return "cancelled"
        if self.planted and first.new_status != "running":
            return str(first.new_status)
        if self.planted and first.max_attempts == 1:
            return "dead"
        return _ENDS.get(self.kind, "done")

    def _hold(self, hold: Hold, living: str | None) -> Iterator[str]:
        claim, end = hold.claim, hold.end
        if claim.old_status is not None and claim.attempts != claim.old_attempts + 1:
            yield f"a claim made {claim.attempts} attempts of {claim.old_attempts}"
        if end is None:
            yield f"is held by {claim.leased_by} for ever"
            return
        if end.old_token != claim.new_token:
            yield "another's token ended a hold"
        if hold.settled and end.application.partition(" ")[0] != claim.leased_by:
            yield f"{end.application} has ended a hold of {claim.leased_by}"
        if not hold.settled:
            if end.at <= end.old_lease_until:
                yield f"was taken from {claim.leased_by} before its lease had ended"
            if claim.leased_by == living:
                yield f"was taken from {living}, which lives"
            if hold.given_back:
                yield "a rescue gave the attempt back"

    def _attempts(self, living: str | None) -> Iterator[str]:
        before = None
        for change in self.changes:
            if before is not None and (change.old_attempts, change.old_returned) != before:
                yield f"counts {change.old_attempts}, {change.old_returned}, after {before}"
            claimed = change.new_status == "running" and change.old_status == "ready"
            if (
                change.old_status
                and change.new_status
                and not claimed
                and change.attempts != change.old_attempts
            ):
                yield f"{change.new_status} changes attempts from {change.old_attempts} to {change.attempts}"
            before = (change.attempts, change.returned)
        ended = [hold for hold in self.holds if hold.end is not None]
        charged = [hold for hold in ended if not hold.given_back]
        last = self.changes[-1]
        if last.attempts is None or self.kind == UNKNOWN or not self.holds:
            return
        if last.attempts - last.returned != len(charged):
            yield f"counts {last.attempts} - {last.returned} attempts after {len(charged)} that are to be charged"
        if len(self.starts) > last.attempts:
            yield f"has begun {len(self.starts)} times in {last.attempts} attempts"
        by = Counter(start.runner for start in self.starts)
        held = Counter(hold.claim.leased_by for hold in self.holds)
        for runner, count in by.items():
            if count > held[runner]:
                yield f"{runner} has begun it {count} times, and had it {held[runner]} times"
        # A runner that lives charges what it has begun, and nothing else; what is past its time it never begins.
        begun = sum(hold.end.reason != "expired" for hold in charged)
        if living and not self.planted and self.kind != "snooze" and len(self.starts) != begun:
            yield f"has begun {len(self.starts)} times, and {begun} attempts are charged"


def _rows(connection: Connection[Any], query: str) -> list[Any]:
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query.encode()).fetchall()
