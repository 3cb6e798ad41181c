"""One schedule: jobs arrive, everything goes wrong for a while, then nothing does, and all must come to rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from sa_jobqueue import loop
from sa_jobqueue.outcomes import Discard, Retry, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import attempt, completing, watch
from sa_jobqueue.runner.executors.protocol import Execution
from sa_jobqueue.runner.roles import dispatcher
from tests.simulation.block import Block
from tests.simulation.checks import Checks
from tests.simulation.database import CANCELLED, DEAD, DONE, Database
from tests.simulation.runner import LEASE, SimulatedRunner, Steps
from tests.simulation.store import Network
from tests.simulation.world import Chance, Clock, World

#: How long things go wrong, and how long everything may take to come to rest afterwards.
TROUBLED, PATIENCE = 12.0, 90.0
LIMITS = {"a": 2, "b": 1}
NAMES = ("first", "second")


@dataclass(frozen=True, slots=True)
class Profile:
    """What may go wrong: shares of statements, and how often per schedule the rest happens at most.

    `attempts_are_exact`: no attempt is spent on what never ran. `living_keep`: no job of a living runner is rescued.
    `leases_hold`: no lease of a living runner ever runs out. `blocks` is the share of handlers that complete their jobs in
    transactions of their own.
    """

    trouble: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 0
    partitions: int = 0
    cuts: int = 0
    pauses: int = 0
    crashes: int = 0
    stops: int = 0
    locks: int = 0
    cancels: int = 0
    late_jobs: int = 0
    longest_outage: float = LEASE * 1.3
    long_runs: bool = False
    timeout: timedelta | None = None
    blocks: float = 0.0
    attempts_are_exact: bool = False
    living_keep: bool = False
    leases_hold: bool = False
    reports_are_exact: bool = False


EVERYTHING = Profile(
    {"refused": 0.02, "never": 0.02, "late": 0.02, "lost": 0.02},
    restarts=1,
    cuts=1,
    pauses=2,
    crashes=1,
    stops=1,
    locks=3,
    cancels=2,
)
CALM = Profile(attempts_are_exact=True, living_keep=True, leases_hold=True)
LOST_ANSWERS = Profile({"never": 0.03, "late": 0.05, "lost": 0.05}, attempts_are_exact=True)
OUTAGES = Profile(restarts=1, partitions=1, longest_outage=LEASE * 3, long_runs=True, living_keep=True)
TIMEOUTS = Profile(
    {"refused": 0.01, "never": 0.01, "lost": 0.01},
    cuts=1,
    pauses=1,
    crashes=1,
    stops=1,
    locks=3,
    long_runs=True,
    timeout=timedelta(seconds=1),
)
LATE_JOBS = Profile({"lost": 0.02}, crashes=1, stops=1, late_jobs=8)
TAKEOVERS = Profile(cuts=2, pauses=2, locks=1, longest_outage=LEASE * 2, long_runs=True)
BLOCKS = replace(EVERYTHING, blocks=0.8, timeout=timedelta(seconds=4))
DOUBTS = Profile(
    {"never": 0.04, "late": 0.06, "lost": 0.06},
    locks=2,
    cuts=1,
    blocks=1.0,
    reports_are_exact=True,
)


def simulated(patch: pytest.MonkeyPatch) -> tuple[Clock, Chance]:
    """Give the engine, the hands and the attempts the world's clock and chance."""
    clock, chance = Clock(), Chance()
    for module in (loop, dispatcher, attempt, watch, completing):
        patch.setattr(module, "time", clock)
    for module in (loop, dispatcher):
        patch.setattr(module, "random", chance)
    return clock, chance


class Schedule:
    """The history of one seed."""

    def __init__(
        self, seed: int, profile: Profile, *, steps: Steps | None = None, fenced: bool = True
    ) -> None:
        self.world = World(seed)
        Clock.world = Chance.world = self.world
        self._profile = profile
        self._random = self.world.random
        self.database = Database(lambda: self.world.now, self.world.call_at, fenced=fenced)
        self.checks = Checks(self.database)
        self._networks = {name: Network(profile.trouble) for name in NAMES}
        self._steps = steps or Steps()
        self._registry = Registry()
        half_a_second = fixed(timedelta(seconds=0.5))
        self._registry.handler("work", retry=half_a_second, timeout=profile.timeout)(self._handle)
        self.runners = [self._runner(name) for name in NAMES]

    def run(self) -> list[str]:
        """What went wrong, nothing in the usual case."""
        begin = self.world.now
        self._add_jobs()
        self._plan_trouble()
        self.world.run(until=begin + TROUBLED, wrong=self._wrong, done=lambda: False)
        self._calm_down()
        self.world.run(until=begin + TROUBLED + PATIENCE, wrong=self._wrong, done=self._quiet)
        if not self.checks.found:
            self.checks.at_the_end(self.runners)
        if self._profile.attempts_are_exact:
            self.checks.attempts_are_only_spent_on_runs()
        if self._profile.living_keep:
            self.checks.nobody_living_was_rescued(set(NAMES))
        if self._profile.leases_hold:
            self.checks.no_lease_lapsed()
        if self._profile.reports_are_exact:
            self.checks.every_end_was_reported_once()
        found = list(self.checks.found)
        self.world.close()
        return found

    def _runner(self, name: str) -> SimulatedRunner:
        return SimulatedRunner(
            name,
            self.world,
            self.database,
            self._networks[name],
            self._registry,
            self.checks,
            self._steps,
            dict(LIMITS),
        )

    def _add_jobs(self) -> None:
        for _ in range(7):
            self.database.add(
                queue="a" if self._random.random() < 0.7 else "b",
                run_at=self.world.now + self._random.random() * TROUBLED * 0.7,
                max_attempts=2 + int(self._random.random() * 3),
            )

    def _add_late_job(self) -> None:
        """A transaction commits that was open for long, or somebody puts a due time into the past."""
        self.database.add("a", run_at=self.world.now - self._random.random() * TROUBLED, max_attempts=3)

    def _plan_trouble(self) -> None:
        profile = self._profile
        self._plan(profile.restarts, lambda: self.database.restart(self._soon(profile.longest_outage)))
        self._plan(profile.partitions, self._part)
        self._plan(profile.cuts, self._cut)
        self._plan(profile.pauses, lambda: self._any_runner().pause(self._random.random() * LEASE * 2))
        self._plan(profile.crashes, self._crash)
        self._plan(profile.stops, self._stop)
        self._plan(profile.locks, self._lock)
        self._plan(profile.cancels, lambda: self.database.cancel(self._any_job()))
        self._plan(profile.late_jobs, self._add_late_job)

    def _plan(self, most: int, act: Any) -> None:
        for _ in range(int(self._random.random() * (most + 1))):
            self.world.call_at(self._soon(TROUBLED), act)

    def _soon(self, seconds: float) -> float:
        return self.world.now + self._random.random() * seconds

    def _any_runner(self) -> SimulatedRunner:
        return self.runners[int(self._random.random() * len(self.runners))]

    def _any_job(self) -> int:
        return 1 + int(self._random.random() * len(self.database.rows))

    def _part(self) -> None:
        """The network is away for everybody, the server isn't."""
        until = self._soon(self._profile.longest_outage)
        for network in self._networks.values():
            network.cut_until = until

    def _cut(self) -> None:
        """A network is away, the server isn't."""
        network = self._networks[self._any_runner().name]
        network.cut_until = self._soon(self._profile.longest_outage)

    def _crash(self) -> None:
        """A process is killed and started again."""
        runner = self._any_runner()
        if not runner.gone:
            runner.crash()
            self.runners.append(self._runner(runner.name))

    def _stop(self) -> None:
        """A process is stopped by its first signal, and another one started."""
        runner = self._any_runner()
        if not runner.stopped and not runner.gone:
            runner.stop()
            self.runners.append(self._runner(runner.name))

    def _lock(self) -> None:
        """An application's transaction holds a row."""
        row = self.database.rows[self._any_job()]
        row.locked_until = max(row.locked_until, self._soon(LEASE * 1.5))

    def _calm_down(self) -> None:
        """Outages end by themselves."""
        for network in self._networks.values():
            network.trouble = {}

    def _wrong(self) -> bool:
        return bool(self.checks.found)

    def _quiet(self) -> bool:
        """Every job is at rest, and so is every runner."""
        return all(row.status in (DONE, DEAD, CANCELLED) for row in self.database.rows.values()) and all(
            runner.gone or (runner.idle and not runner.stopped) for runner in self.runners
        )

    def _complete(self, block: Block, execution: Execution) -> Any:
        """The handler's own transaction, and whatever the handler does after it."""
        draw = self._random.random
        failed = False
        try:
            block.run(execution, seconds=draw() ** 3 * LEASE, strict=draw() < 0.3, fails=draw() < 0.1)
        except Exception:
            failed = True
            if draw() < 0.5:
                raise
        if draw() < 0.3:
            self.world.sleep(draw() ** 2 * LEASE)
        afterwards = draw()
        if afterwards < 0.1:
            raise ValueError("it failed afterwards")
        if afterwards < 0.2:
            return Retry(after=timedelta(seconds=draw()))
        if afterwards < 0.3 and failed:
            return Snooze(timedelta(seconds=draw()))
        return None

    def _handle(self) -> Any:
        if (task := self.world.current) is not None:
            self.checks.begins(task.carries)
            if self._profile.blocks and self._random.random() < self._profile.blocks:
                return self._complete(task.block, task.carries)
        chance = self._random.random()
        seconds = self._random.random() * LEASE * 2
        self.world.sleep(seconds if self._profile.long_runs else seconds * self._random.random() ** 2)
        if chance < 0.65:
            return None
        if chance < 0.75:
            return Snooze(timedelta(seconds=self._random.random()))
        if chance < 0.8:
            return Retry(after=timedelta(seconds=self._random.random()))
        if chance < 0.85:
            return Discard("nobody wants it")
        raise ValueError("it failed")
