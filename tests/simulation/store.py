"""What a runner calls: the methods of the Store over the fake table, on a connection that may break at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sqlalchemy.exc import OperationalError

from sa_jobqueue.records import (
    DEFAULT_PRIORITY,
    ClaimAnswer,
    ClaimedJob,
    ExpiredLease,
    Landing,
    Progress,
    Pruned,
    PrunePosition,
    Renewed,
    Rescued,
    Settled,
    Settlement,
    Waiting,
)
from sa_jobqueue.states import JobStatus, Verb
from tests.support.executions import NOON

if TYPE_CHECKING:
    from sa_jobqueue.records import Marks
    from sa_jobqueue.runner.settings import RunnerSettings
    from tests.simulation.database import Database, Row
    from tests.simulation.ledger import Key
    from tests.simulation.world import World

Answer = TypeVar("Answer")


class _RefusedError(Exception):
    sqlstate = "57014"


def broken() -> Exception:
    return OperationalError("UPDATE", {}, Exception("the connection broke"))


def refused_statement() -> Exception:
    return OperationalError("UPDATE", {}, _RefusedError("canceling statement due to statement timeout"))


def _unreachable() -> Exception:
    return OperationalError(None, None, Exception("connection refused"))


class Network:
    """Between one machine and the database: how often what goes wrong, and whether anything comes through."""

    def __init__(self, trouble: Mapping[str, float], travel: float) -> None:
        self.trouble = trouble
        self.travel = travel
        self.cut_until = 0.0

    def draw(self, chance: float) -> str | None:
        for kind, share in self.trouble.items():
            if (chance := chance - share) < 0:
                return kind
        return None


class Site:
    """Where one process runs: what its connections are made of. Stands where the runner has its engine."""

    def __init__(
        self, world: World, database: Database, network: Network, name: str, settings: RunnerSettings
    ) -> None:
        self.world = world
        self.database = database
        self.network = network
        self.name = name
        self.settings = settings
        self.lease = settings.lease.total_seconds()

    def away(self) -> bool:
        return self.world.now < self.database.down_until or self.world.now < self.network.cut_until

    def draw(self) -> str | None:
        trouble = self.network.trouble
        return self.network.draw(self.world.random.random()) if trouble else None

    def travel(self) -> None:
        self.world.sleep(self.world.random.random() * self.network.travel)

    def soon(self) -> float:
        """When what is on its way may land at last: within the lease."""
        return self.world.now + self.world.random.random() * self.lease * 0.9

    @staticmethod
    def moment(seconds: float) -> datetime:
        return NOON + timedelta(seconds=seconds)

    @staticmethod
    def seconds(moment: datetime) -> float:
        return (moment - NOON).total_seconds()

    def dispose(self) -> None:
        """As of an engine."""


class Line:
    """One connection, made when it is first needed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._epoch: int | None = None

    def reset(self) -> None:
        self._epoch = None

    close = reset

    def statement(self, what: str, land: Callable[[], Answer], *, batch: Sequence[Settlement] = ()) -> Answer:
        """There and back, with everything that can happen on the way; a late batch may hold its rows until it lands."""
        site = self._site
        site.travel()
        if self._epoch is None:
            if site.away():
                raise _unreachable()
            self._epoch = site.database.epoch
        fault = site.draw()
        if fault is not None:
            site.world.note(f"{what} is {fault}")
        match fault:
            case "refused":
                raise refused_statement()
            case "never":
                raise broken()
            case "late":
                self._land_late(land, batch)
                raise broken()
            case "lost":
                self._check()
                site.database.statements += 1
                land()
                raise broken()
        self._check()
        site.database.statements += 1
        answer = land()
        if site.world.history is not None:
            site.world.note(f"{what} -> {answer}")
        site.travel()
        self._check()
        return answer

    def _check(self) -> None:
        if self._epoch != self._site.database.epoch or self._site.away():
            raise broken()

    def _land_late(self, land: Callable[[], Any], batch: Sequence[Settlement]) -> None:
        """The client is gone, the statement goes on: within a lease, and sometimes holding its rows until then."""
        at, database = self._site.soon(), self._site.database
        if batch and self._site.world.random.random() < 0.5:
            database.hold([(one.id, one.token) for one in batch], at)
            land = lambda: database.settle(batch, own_lock=True)  # noqa: E731
        self._site.world.call_at(at, land)


class FakeStore:
    """One connection of one runner's loop."""

    def __init__(self, site: Site, *, name: str, on_refused: object = None) -> None:
        self.name = name
        self._site = site
        self._database = site.database
        self._line = Line(site)
        self.reset = self.close = self._line.reset

    def claim_behind(
        self,
        marks: Mapping[str, Marks],
        *,
        token: UUID,
        quotas: Mapping[str, int],
        kinds: Sequence[str],
        lease: timedelta,
    ) -> ClaimAnswer:
        lows = {queue: mark for queue in marks if (mark := marks[queue][DEFAULT_PRIORITY]) is not None}
        behind = {queue: (self._site.seconds(mark.run_at), mark.id) for queue, mark in lows.items()}

        def land() -> list[ClaimedJob]:
            rows = self._database.claim(
                token, quotas, lease.total_seconds(), self.name, behind, owner=self._site
            )
            # The order of claims is by queue.
            return [self._claimed(row, token) for row in rows]

        jobs = self._line.statement("claim", land)
        if any(self._database.rows[job.id].poisoned for job in jobs if job.id in self._database.rows):
            raise broken()
        return ClaimAnswer(jobs, through=True)

    def now(self) -> datetime:
        return self._line.statement("now", lambda: self._site.moment(self._site.world.now))

    def release_claim(self, *, token: UUID) -> int:
        self._line.statement("release_claim", lambda: self._database.release_claim(token))
        return 0

    def renew(self, held: Sequence[Key], *, lease: timedelta) -> list[Renewed]:
        if not held:
            return []
        landed = self._line.statement("renew", lambda: self._database.renew(held, lease.total_seconds()))
        return self._renewed(held, landed)

    def report(self, reports: Sequence[tuple[Key, Progress]]) -> list[Renewed]:
        landed = self._line.statement("report", lambda: self._database.report(reports))
        return self._renewed([key for key, _ in reports], landed)

    def settle(self, settlements: Sequence[Settlement], *, again: bool = False) -> list[Settled]:
        answers: dict[Key, Settled] = {}
        for verb in dict.fromkeys(one.verb for one in settlements):
            batch = [one for one in settlements if one.verb is verb]
            landed = self._line.statement(verb, partial(self._database.settle, batch), batch=batch)
            missed = {(one.id, one.token): one.xid for one in batch if (one.id, one.token) not in landed}
            answers |= self._misses(missed, verb, again=again)
            answers |= {key: Settled(*key, Landing.LANDED, status) for key, status in landed.items()}
        return [answers[one.id, one.token] for one in settlements]

    def expired_leases(
        self, *, lease: timedelta, margin: timedelta, limit: int, passed: int
    ) -> list[ExpiredLease]:
        def land() -> list[ExpiredLease]:
            rows = self._database.expired(lease.total_seconds(), margin.total_seconds())
            return [
                ExpiredLease(
                    row.id,
                    row.token or UUID(int=0),
                    "work",
                    row.queue,
                    row.attempts,
                    row.returned,
                    row.max_attempts,
                    row.leased_by,
                )
                for row in rows
            ]

        return self._line.statement("expired", land)[passed : passed + limit]

    def rescue(self, leases: Sequence[tuple[ExpiredLease, timedelta]], *, margin: timedelta) -> list[Rescued]:
        if not leases:
            return []
        wanted = [(lease.id, lease.token, delay.total_seconds()) for lease, delay in leases]
        rows = self._line.statement("rescue", lambda: self._database.rescue(wanted, margin.total_seconds()))
        return [
            Rescued(row.id, "work", row.queue, row.attempts - row.returned, row.status, row.leased_by)
            for row in rows
        ]

    def prune(
        self, *, status: JobStatus, age: timedelta, limit: int, position: PrunePosition | None
    ) -> Pruned:
        after = (0.0, 0) if position is None else (self._site.seconds(position.finished_at), position.id or 0)

        def land() -> tuple[Any, ...]:
            return self._database.prune(status, age.total_seconds(), limit, after)

        count, refused, (at, job_id), more = self._line.statement("prune", land)
        return Pruned(
            count,
            refused,
            "foreign key" if refused else None,
            more,
            PrunePosition(self._site.moment(at), job_id),
        )

    def wait_for_jobs(self, *, queues: Sequence[str], kinds: Sequence[str], wait: timedelta) -> Waiting:
        others, next_due = self._line.statement(
            "wait_for_jobs", lambda: self._database.wait_for_jobs(self.name, queues, wait.total_seconds())
        )
        return Waiting(others, None if next_due is None else timedelta(seconds=next_due))

    def stop_waiting(self) -> None:
        self._line.statement("stop_waiting", lambda: self._database.waiting.pop(self.name, None))

    def unknown_kinds(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        return self._line.statement("unknown_kinds", dict)

    def unserved(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        return self._line.statement("unserved", dict)

    def installed_version(self) -> int:
        return self._line.statement("installed_version", lambda: 1)

    def _claimed(self, row: Row, token: UUID) -> ClaimedJob:
        return ClaimedJob(
            row.id,
            token,
            "work",
            row.queue,
            {},
            1,
            DEFAULT_PRIORITY,
            row.attempts,
            row.returned,
            row.max_attempts,
            self._site.moment(row.run_at),
            NOON,
            None,
            row.expired,
        )

    def _renewed(self, keys: Sequence[Key], landed: Mapping[Key, bool]) -> list[Renewed]:
        missing = self._misses({key: None for key in keys if key not in landed}, Verb.RENEW, again=False)
        return [
            Renewed(*key, Landing.LANDED, landed[key])
            if key in landed
            else Renewed(*key, missing[key].landing)
            for key in keys
        ]

    def _misses(self, keys: Mapping[Key, int | None], verb: Verb, *, again: bool) -> dict[Key, Settled]:
        if not keys:
            return {}
        return self._line.statement(
            "owners",
            lambda: {
                key: self._database.missed(key, verb, again=again, xid=xid) for key, xid in keys.items()
            },
        )


class FakeEar:
    """Hears what is committed, while its connection lives; a silent network is only found out by a check."""

    def __init__(self, site: Site, _notifier: Site) -> None:
        self._site = site
        self._line = Line(site)
        self._epoch: int | None = None
        self._notified = False
        self._heard_by: Any = None
        self.interrupted = False

    @property
    def pooled(self) -> bool:
        return self._site.database.pooled

    def listen(self) -> bool:
        self.reset()
        self._line.statement("listen", self._attend)
        return not self.pooled

    def check(self) -> None:
        self._line.statement("check", lambda: None)

    def hear(self, seconds: float) -> bool:
        world = self._site.world
        deadline = world.now + seconds
        while not self._notified and not self.interrupted and world.now < deadline:
            if self._epoch != self._site.database.epoch:
                raise broken()
            self._heard_by = world.current
            world.wait(deadline)
        heard, self._notified = self._notified, False
        return heard

    def interrupt(self) -> None:
        self.interrupted = True
        self._ring()

    def reset(self) -> None:
        self._line.reset()
        if self._told in self._site.database.ears:
            self._site.database.ears.remove(self._told)

    close = reset

    def _attend(self) -> None:
        self._epoch = self._site.database.epoch
        self._notified = False
        if not self.pooled:
            self._site.database.ears.append(self._told)

    def _told(self) -> None:
        """A notification, or the end of the connection, arrives."""
        if self._epoch != self._site.database.epoch:
            self._ring()
        elif not self._site.away():
            self._notified = True
            self._ring()

    def _ring(self) -> None:
        if self._heard_by is not None:
            self._site.world.wake(self._heard_by)
