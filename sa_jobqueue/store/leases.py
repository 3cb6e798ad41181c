"""The store as a runner sees it: claim, renew, settle, rescue, on one connection.

What columns these words write stands in `statements`; when to call them is the runner's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from sa_jobqueue.errors import SchemaVersionError
from sa_jobqueue.models import SCHEMA_VERSION, schema_in_use
from sa_jobqueue.queries import expired, schema, unknown, unserved
from sa_jobqueue.records import ClaimedJob, ExpiredLease, Landing, Renewed, Rescued
from sa_jobqueue.statements import renew, rescue
from sa_jobqueue.states import Verb
from sa_jobqueue.store.callers_connection import CallersConnection
from sa_jobqueue.store.claiming import claim_rows, release_rows
from sa_jobqueue.store.own_connection import OwnConnection
from sa_jobqueue.store.pieces import write_in_pieces
from sa_jobqueue.store.reconcile import STATUSES, misses
from sa_jobqueue.store.settling import settle_all
from sa_jobqueue.store.trouble import passes_by_itself

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Engine

    from sa_jobqueue.records import Settled, Settlement
    from sa_jobqueue.store.callers_connection import StoreConnection


class Store:
    """The verbs of one runner role, each call one or a few statements that are durable on return.

    Given an engine (psycopg), it holds one connection of it from the first call on and belongs to one thread. Errors of
    the driver pass through as SQLAlchemy raises them; after one that broke the connection call `reset()`. `name` goes
    into `leased_by` of the jobs that are claimed.

    Given a Connection, it works in the caller's transaction instead, each statement within a savepoint: what it writes
    is durable when the caller commits, and seen by nobody else before.
    """

    def __init__(self, source: Engine | Connection, *, name: str) -> None:
        self._name = name
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
        nobody claim are passed over, up to a hundred at the head of each queue; when nothing but these is there, its
        error is raised.
        """
        wanted = {queue: quota for queue, quota in quotas.items() if quota > 0}
        if not wanted or not kinds:
            return []
        terms = {"token": token, "lease": lease, "runner": self._name}
        rows = claim_rows(self._connection, wanted, kinds, terms)
        claimed = [ClaimedJob(row[0], token, *row[1:]) for row in rows]
        ranks = {queue: rank for rank, queue in enumerate(wanted)}

        def order(job: ClaimedJob) -> tuple[int, int, datetime, int]:
            return ranks[job.queue], job.priority, job.run_at, job.id

        claimed.sort(key=order)
        return claimed

    def release_claim(self, *, token: UUID) -> int:
        """Give back what a claim with a lost answer took, and tell how many jobs; 0 when it took none or never landed.

        The claim may land after this call: repeat it until one lease after its connection was dropped. A job whose
        release the database refuses is left to its lease.
        """
        return release_rows(self._connection, token)

    def renew(self, held: Sequence[tuple[int, UUID]], *, lease: timedelta) -> list[Renewed]:
        """Extend leases in one statement, answers in the order of `held`.

        Brings an expired lease back that nobody took. Landings: landed, busy, lost, gone. A row whose renewal the
        database refuses is busy as well, and holds back no other; where nothing landed and every refusal was of the kind
        that passes (a timeout, a deadlock), the first of them is raised.
        """

        def write(piece: Sequence[tuple[int, UUID]]) -> Iterable[tuple[int, bool]]:
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
        missed = [pair for place, pair in enumerate(held) if place not in landed]
        missing = misses(self._connection, missed, verb=Verb.RENEW) if missed else {}
        return [
            Renewed(job_id, token, Landing.LANDED, landed[place])
            if place in landed
            else Renewed(job_id, token, missing[job_id, token].landing)
            for place, (job_id, token) in enumerate(held)
        ]

    def settle(self, settlements: Sequence[Settlement], *, again: bool = False) -> list[Settled]:
        """Write outcomes, one statement per verb, answers in the order given.

        `again` says that these were sent before and the answer was lost: a write of the same token that has landed
        since then counts as this one, if it was a completion for a completion or another verb for another verb.
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

        landed = write_in_pieces(write, leases).landed
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

    def unknown_kinds(self, *, queues: Sequence[str], kinds: Sequence[str], limit: int) -> dict[str, int]:
        """Kinds other than these among the first `limit` due jobs of each queue: how many of each."""
        parameters = {"queues": list(queues), "kinds": list(kinds), "amount": limit}
        return dict(map(tuple, self._connection.rows(unknown.unknown_kinds(), parameters)))

    def unserved(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        """Jobs of these kinds among the first `limit` due ones of each queue but these: queue to kind to how many."""
        parameters = {"queues": list(queues), "kinds": list(kinds), "amount": limit}
        found: dict[str, dict[str, int]] = {}
        for queue, kind, count in self._connection.rows(unserved.unserved(), parameters):
            found.setdefault(queue, {})[kind] = count
        return found

    def installed_version(self) -> int | None:
        """The version of the queue's tables in this database, None without them."""
        return schema.version(self._connection.rows(schema.comment())[0][0])

    def check_schema(self) -> None:
        """Raise SchemaVersionError when the tables are missing or older than this release needs; newer is fine."""
        installed = self.installed_version()
        if installed is None or installed < SCHEMA_VERSION:
            raise SchemaVersionError(_advice(installed), installed=installed, required=SCHEMA_VERSION)

    def reset(self) -> None:
        """Drop a broken connection; the next call connects anew."""
        self._connection.reset()

    def close(self) -> None:
        """Give the connection back. The next call would open another one."""
        self._connection.close()


def _advice(installed: int | None) -> str:
    name = schema_in_use()
    place = f"in schema {name!r}" if name is not None else "on the search_path"
    argument = "" if name is None else f", schema={name!r}"
    found = (
        f"no jobqueue_jobs table of sa_jobqueue {place}"
        if installed is None
        else (f"the queue's tables {place} have version {installed}, this release needs {SCHEMA_VERSION}")
    )
    return (
        f"{found}: add a revision to your Alembic history with "
        f"op.migrate_jobqueue({installed or 0}, {SCHEMA_VERSION}{argument}) (unless you have it already) and run: "
        "alembic upgrade head"
    )
