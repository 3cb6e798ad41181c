"""What a runner calls: the Store's methods over the fake table, on a connection that may break at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sqlalchemy.exc import OperationalError

from sa_jobqueue.records import (
    DEFAULT_PRIORITY,
    ClaimAnswer,
    ClaimedJob,
    ExpiredLease,
    Landing,
    Pruned,
    PrunePosition,
    Renewed,
    Rescued,
    Settled,
    Settlement,
)
from sa_jobqueue.states import JobStatus, Verb
from tests.simulation.database import RUNNING, Database, Key
from tests.support.executions import NOON

if TYPE_CHECKING:
    from sa_jobqueue.records import Marks
    from tests.simulation.world import World

Answer = TypeVar("Answer")


class _RefusedError(Exception):
    sqlstate = "57014"


def broken() -> Exception:
    return OperationalError("UPDATE", {}, Exception("the connection broke"))


def _unreachable() -> Exception:
    return OperationalError(None, None, Exception("connection refused"))  # type: ignore[arg-type]


def refused_statement() -> Exception:
    return OperationalError("UPDATE", {}, _RefusedError("canceling statement due to statement timeout"))


class Network:
    """Between one runner and the database: how often what goes wrong, and whether anything comes through."""

    def __init__(self, trouble: Mapping[str, float]) -> None:
        self.trouble = trouble
        self.cut_until = 0.0

    def draw(self, chance: float) -> str | None:
        for kind, share in self.trouble.items():
            if (chance := chance - share) < 0:
                return kind
        return None


class FakeStore:
    """One connection of one runner's loop."""

    def __init__(
        self, world: World, database: Database, network: Network, *, name: str, lease: float
    ) -> None:
        self.name = name
        self._world = world
        self._database = database
        self._network = network
        self._lease = lease
        self._epoch: int | None = None

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
        behind = {queue: ((mark.run_at - NOON).total_seconds(), mark.id) for queue, mark in lows.items()}

        rows = self._statement(
            lambda: self._database.claim(token, quotas, lease.total_seconds(), self.name, behind), claims=True
        )
        jobs = [
            ClaimedJob(
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
                _moment(row.run_at),
                NOON,
                None,
                False,
            )
            for row in rows
        ]
        return ClaimAnswer(jobs, through=True)

    def now(self) -> datetime:
        return self._statement(lambda: _moment(self._world.now))

    def release_claim(self, *, token: UUID) -> int:
        self._statement(lambda: self._database.release_claim(token))
        return 0

    def renew(self, held: Sequence[Key], *, lease: timedelta) -> list[Renewed]:
        if not held:
            return []
        landed = self._statement(lambda: self._database.renew(held, lease.total_seconds()))
        missing = self._misses([key for key in held if key not in landed], Verb.RENEW, again=False)
        return [
            Renewed(*key, Landing.LANDED, landed[key])
            if key in landed
            else Renewed(*key, missing[key].landing)
            for key in held
        ]

    def settle(self, settlements: Sequence[Settlement], *, again: bool = False) -> list[Settled]:
        answers: dict[Key, Settled] = {}
        for verb in dict.fromkeys(one.verb for one in settlements):
            batch = [one for one in settlements if one.verb is verb]
            landed = self._statement(lambda batch=batch: self._database.settle(batch), batch=batch)
            missed = [(one.id, one.token) for one in batch if (one.id, one.token) not in landed]
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

        return self._statement(land)[passed : passed + limit]

    def rescue(self, leases: Sequence[tuple[ExpiredLease, timedelta]], *, margin: timedelta) -> list[Rescued]:
        if not leases:
            return []
        wanted = [(lease.id, lease.token, delay.total_seconds()) for lease, delay in leases]
        rows = self._statement(lambda: self._database.rescue(wanted, margin.total_seconds()))
        return [
            Rescued(row.id, "work", row.queue, row.attempts - row.returned, row.status, row.leased_by)
            for row in rows
        ]

    def prune(
        self, *, status: JobStatus, age: timedelta, limit: int, position: PrunePosition | None
    ) -> Pruned:
        """Nothing is ever old enough: no world lasts for days."""
        return self._statement(lambda: Pruned(0))

    def unknown_kinds(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        return self._statement(dict)

    def unserved(
        self, *, queues: Sequence[str], kinds: Sequence[str], limit: int
    ) -> dict[str, dict[str, int]]:
        return self._statement(dict)

    def installed_version(self) -> int:
        return self._statement(lambda: 1)

    def reset(self) -> None:
        self._epoch = None

    def close(self) -> None:
        self._epoch = None

    def _misses(self, keys: Sequence[Key], verb: Verb, *, again: bool) -> dict[Key, Settled]:
        if not keys:
            return {}
        return self._statement(lambda: {key: self._database.missed(key, verb, again=again) for key in keys})

    def _statement(
        self, land: Callable[[], Answer], *, claims: bool = False, batch: Sequence[Settlement] = ()
    ) -> Answer:
        """There and back, with everything that can happen on the way."""
        self._travel()
        if self._epoch is None:
            if self._away():
                raise _unreachable()
            self._epoch = self._database.epoch
        match self._network.draw(self._world.random.random()):
            case "refused":
                raise refused_statement()
            case "never":
                raise broken()
            case "late":
                self._land_late(land, batch)
                raise broken()
            case "lost":
                self._check_connection()
                land()
                raise broken()
        self._check_connection()
        answer = land()
        self._travel()
        self._check_connection()
        return answer

    def _travel(self) -> None:
        self._world.sleep(self._world.random.random() * 0.02)

    def _away(self) -> bool:
        return self._world.now < max(self._database.down_until, self._network.cut_until)

    def _check_connection(self) -> None:
        if self._epoch != self._database.epoch or self._away():
            raise broken()

    def _land_late(self, land: Callable[[], Any], batch: Sequence[Settlement]) -> None:
        """The client is gone, the statement goes on: within a lease, and sometimes holding its rows until then."""
        at = self._world.now + self._world.random.random() * self._lease * 0.9
        if batch and self._world.random.random() < 0.5:
            for one in batch:
                row = self._database.rows[one.id]
                if row.status is RUNNING and row.token == one.token:
                    row.locked_until = max(row.locked_until, at)
            self._world.call_at(at, lambda: self._database.settle(batch, own_lock=True))
        else:
            self._world.call_at(at, land)


def _moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)
