"""The store as a runner sees it: claim, renew, settle, rescue, prune, on one connection.

What columns these words write stands in `statements`; when to call them is the runner's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from sa_jobqueue.payloads import read_stored
from sa_jobqueue.queries import expired, schema, session, unknown, unserved
from sa_jobqueue.records import ClaimAnswer, ClaimedJob, ExpiredLease, Landing, Renewed, Rescued, Waiting
from sa_jobqueue.statements import idle, postpone, renew, rescue
from sa_jobqueue.states import Verb
from sa_jobqueue.store.callers_connection import CallersConnection
from sa_jobqueue.store.claiming import claim_rows, release_rows
from sa_jobqueue.store.own_connection import OwnConnection
from sa_jobqueue.store.pieces import write_in_pieces
from sa_jobqueue.store.pruning import PATIENCE, prune_batch
from sa_jobqueue.store.reconcile import STATUSES, misses
from sa_jobqueue.store.refusals import Refusals, unheard
from sa_jobqueue.store.reporting import report_all
from sa_jobqueue.store.schema import require
from sa_jobqueue.store.settling import settle_all
from sa_jobqueue.store.trouble import passes_by_itself

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Engine, Executable

    from sa_jobqueue.records import LeaseKey, Marks, Progress, Pruned, PrunePosition, Settled, Settlement
    from sa_jobqueue.states import JobStatus
    from sa_jobqueue.store.connection import StoreConnection
    from sa_jobqueue.store.refusals import Report


class Store:
    """The verbs of one runner role, each call one or a few statements that are durable on return.

    Given an engine (psycopg), it holds one connection of it from the first call on and belongs to one thread. Errors of
    the driver pass through as SQLAlchemy raises them; after one that broke the connection call `reset()`. `name` goes
    into `leased_by` of the jobs that are claimed. `on_refused` hears of rows whose claim, release, renewal or rescue the
    database refuses.

    Given a Connection, it works in the caller's transaction instead, each statement within a savepoint: what it writes
    is durable when the caller commits, and seen by nobody else before.
    """

    def __init__(self, source: Engine | Connection, *, name: str, on_refused: Report = unheard) -> None:
        self._name = name
        self._refusals = Refusals(on_refused)
        self._connection: StoreConnection = (
            CallersConnection(source) if isinstance(source, Connection) else OwnConnection(source)
        )

    def claim(
        self,
        *,
        token: UUID,
        quotas: Mapping[str, int],
        kinds: Sequence[str],
        lease: timedelta,
    ) -> list[ClaimedJob]:
        """Take due jobs of these kinds: from each queue at most its quota, by priority, due time and id.

        The answer goes by the order of `quotas`, then priority, due time, id. `token` must be fresh for every call,
        also after a call whose answer was lost: hand that one's token to `release_claim`. Jobs that the database lets
        nobody claim are passed over, up to a hundred at the head of each queue, and reported; its error is raised
        where nothing else is there and no single row can be blamed.
        """
        return self.claim_behind({}, token=token, quotas=quotas, kinds=kinds, lease=lease).jobs

    def claim_behind(
        self,
        marks: Mapping[str, Marks],
        *,
        token: UUID,
        quotas: Mapping[str, int],
        kinds: Sequence[str],
        lease: timedelta,
    ) -> ClaimAnswer:
        """The same, but from these queues only jobs that come after the marks; and whether that was all."""
        wanted = {queue: quota for queue, quota in quotas.items() if quota > 0}
        if not wanted or not kinds:
            return ClaimAnswer([], through=False)
        terms = {"token": token, "lease": lease, "runner": self._name}
        rows, through = claim_rows(self._connection, wanted, kinds, terms, self._refusals, marks)
        claimed = [_claimed(token, row) for row in rows]
        ranks = {queue: rank for rank, queue in enumerate(wanted)}

        def order(job: ClaimedJob) -> tuple[int, int, datetime, int]:
            return ranks[job.queue], job.priority, job.run_at, job.id

        claimed.sort(key=order)
        return ClaimAnswer(claimed, through)

    def now(self) -> datetime:
        """The server's time."""
        time: datetime = self._connection.rows(session.clock())[0][0]
        return time

    def release_claim(self, *, token: UUID) -> int:
        """Give back what a claim with a lost answer took, and tell how many jobs; 0 when it took none or never landed.

        The claim may land after this call: repeat it until one lease after its connection was dropped. A job whose
        release the database refuses is left to its lease.
        """
        return release_rows(self._connection, token, self._refusals)

    def renew(self, held: Sequence[LeaseKey], *, lease: timedelta) -> list[Renewed]:
        """Extend leases in one statement, answers in the order of `held`.

        Brings an expired lease back that nobody took. Landings: landed, busy, lost, gone. A row whose renewal the
        database refuses is busy as well, and holds back no other; where nothing landed and every refusal was of the kind
        that passes (a timeout, a deadlock), the first of them is raised.
        """

        def write(piece: Sequence[LeaseKey]) -> Iterable[tuple[int, bool]]:
            parameters = {
                "ids": [job_id for job_id, _ in piece],
                "tokens": [token for _, token in piece],
                "lease": lease,
            }
            return map(tuple, self._connection.rows(renew.renew(), parameters))

        written = write_in_pieces(write, held)
        landed, refused = written.landed, list(written.refused.values())
        if refused and not landed and all(map(passes_by_itself, refused)):
            raise refused[0]  # it came at a bad time: the caller must not take it for a renewal
        self._refusals.tell(Verb.RENEW, {held[place][0]: error for place, error in written.refused.items()})
        missed = [pair for place, pair in enumerate(held) if place not in landed]
        missing = misses(self._connection, missed, verb=Verb.RENEW) if missed else {}
        return [
            Renewed(job_id, token, Landing.LANDED, landed[place])
            if place in landed
            else Renewed(job_id, token, missing[job_id, token].landing)
            for place, (job_id, token) in enumerate(held)
        ]

    def report(self, reports: Sequence[tuple[LeaseKey, Progress]]) -> list[Renewed]:
        """Write the progress of held jobs in one statement, answers in the order given, with the request to cancel.

        Landings as of `renew`; no lease is renewed. A text is cut to 4 KiB; one that the database can't store gives way to
        a note, and a row that it lets nobody write even so is left out of the answers.
        """
        return report_all(self._connection, reports)

    def settle(self, settlements: Sequence[Settlement], *, again: bool = False) -> list[Settled]:
        """Write outcomes, one statement per verb, answers in the order given.

        `again` says that these were sent before and the answer was lost: a write of the same token that has landed
        since then counts as this one, if it was a completion for a completion or another verb for another verb. Where a
        completion landed instead of another verb, sent by the handler itself, the answer is `completed`.
        A settlement that the database refuses (a text that it can't store, somebody's trigger) does not hold back its
        neighbours: it is written in a reduced form, or else told busy, and says why in `fault`.
        """
        return settle_all(self._connection, settlements, again=again)

    def expired_leases(
        self, *, lease: timedelta, margin: timedelta, limit: int, passed: int = 0
    ) -> list[ExpiredLease]:
        """Running jobs whose lease is past by more than `margin`, the longest past first, without the first `passed`.

        None within one `lease` of the server's start.
        """
        parameters = {"lease": lease, "margin": margin, "amount": limit, "passed": passed}
        rows = self._connection.rows(expired.expired(), parameters)
        return [ExpiredLease(*row) for row in rows]

    def rescue(self, leases: Sequence[tuple[ExpiredLease, timedelta]], *, margin: timedelta) -> list[Rescued]:
        """Take jobs back from lost runners, each due again after its delay; answers for those that were taken.

        Left out are jobs that somebody else took or renewed, that are locked, or whose rescue the database refuses.
        """

        def write(piece: Sequence[tuple[ExpiredLease, timedelta]]) -> Iterable[tuple[int, str]]:
            parameters = {
                "ids": [lease.id for lease, _ in piece],
                "tokens": [lease.token for lease, _ in piece],
                "delays": [delay for _, delay in piece],
                "margin": margin,
            }
            return map(tuple, self._connection.rows(rescue.rescue(), parameters))

        written = write_in_pieces(write, leases)
        landed = written.landed
        self._refusals.tell(
            Verb.RESCUE, {leases[place][0].id: error for place, error in written.refused.items()}
        )
        return [
            Rescued(
                lease.id,
                lease.kind,
                lease.queue,
                lease.counted_attempts,
                STATUSES[landed[place]],
                lease.leased_by,
            )
            for place, (lease, _) in enumerate(leases)
            if place in landed
        ]

    def prune(
        self, *, status: JobStatus, age: timedelta, limit: int, position: PrunePosition | None = None
    ) -> Pruned:
        """Delete one batch of jobs of a terminal status that finished longer than `age` ago, the oldest first.

        Skips what is locked, counts what the database refuses to delete, and goes on from the last answer's `position`.
        Locks on what hangs on a job by an application's foreign key are waited for, half a second each and a few of
        them at most; then those jobs are left as locked ones are.
        """
        return prune_batch(
            self._connection.rows, status=status, age=age, limit=limit, position=position, patience=PATIENCE
        )

    def unknown_kinds(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        """Jobs of other kinds than these among the first `limit` due ones of each queue: queue to kind to how many."""
        parameters = {"queues": list(queues), "kinds": list(kinds), "amount": limit}
        return self._counts(unknown.unknown_kinds(), parameters)

    def waiting(self, *, queue: str, kinds: Sequence[str], passed: int, limit: int) -> list[tuple[int, str]]:
        """Id and kind of due jobs of these kinds in a queue, in claim order, without the first `passed`.

        Left out are kinds of which a job runs under a living lease: somebody is there for them.
        """
        parameters = {"queue": queue, "kinds": list(kinds), "passed": passed, "amount": limit}
        return [(job_id, kind) for job_id, kind in self._connection.rows(unknown.waiting(), parameters)]

    def postpone(self, ids: Sequence[int], *, shortest: timedelta, longest: timedelta) -> dict[int, datetime]:
        """Make due jobs due later, in this order, and tell when; the delay doubles each time, within these bounds.

        Left out are jobs that are not due any more, that are locked, or whose change the database refuses.
        """

        def write(piece: Sequence[int]) -> Iterable[tuple[int, datetime]]:
            parameters = {"ids": piece, "shortest": shortest, "longest": longest}
            return map(tuple, self._connection.rows(postpone.postpone(), parameters))

        landed = write_in_pieces(write, ids).landed
        return {ids[place]: run_at for place, run_at in sorted(landed.items())}

    def unserved(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        """Jobs of these kinds among the first `limit` due ones of each queue but these: queue to kind to how many."""
        parameters = {"queues": list(queues), "kinds": list(kinds), "amount": limit}
        return self._counts(unserved.unserved(), parameters)

    def wait_for_jobs(self, *, queues: Sequence[str], kinds: Sequence[str], wait: timedelta) -> Waiting:
        """Say that this runner waits for jobs of these kinds: for at least half of `wait` new ones are notified.

        And for at most `wait`, or a minute where that is longer. The answer tells how soon the next of them is due that is
        in the table already. Whoever waits looks once more after this call: what was inserted before and committed since
        has notified nobody.
        """
        parameters = {"runner": self._name, "wait": wait, "queues": list(queues), "kinds": list(kinds)}
        return Waiting(*self._connection.rows(idle.wait_for_jobs(), parameters)[0])

    def stop_waiting(self) -> None:
        """Say that this runner doesn't wait any more, so that whoever adds jobs need not notify it."""
        self._connection.rows(idle.stop_waiting(), {"runner": self._name})

    def _counts(self, query: Executable, parameters: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for queue, kind, count in self._connection.rows(query, parameters):
            found.setdefault(queue, {})[kind] = count
        return found

    def installed_version(self) -> int | None:
        """The version of the queue's tables in this database, None without them."""
        return schema.version(self._connection.rows(schema.comment())[0][0])

    def check_schema(self) -> None:
        """Raise SchemaVersionError when the tables are missing or older than this release needs; newer is fine."""
        require(self.installed_version())

    @property
    def prepares_statements(self) -> bool:
        """Whether the driver prepares statements, of which nothing is known about a connection of the caller's."""
        return isinstance(self._connection, OwnConnection) and self._connection.prepares

    def reset(self) -> None:
        """Drop a broken connection; the next call connects anew."""
        self._connection.reset()

    def close(self) -> None:
        """Give the connection back. The next call would open another one."""
        self._connection.close()


def _claimed(token: UUID, row: Sequence[Any]) -> ClaimedJob:
    """A row as `statements.claim` gives it."""
    job_id, kind, queue, payload, *others = row
    return ClaimedJob._make((job_id, token, kind, queue, read_stored(payload), *others, len(payload)))
