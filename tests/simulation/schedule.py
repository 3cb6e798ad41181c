"""One schedule: jobs arrive, everything goes wrong for a while, then nothing does, and all must come to rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.context import JobContext
from sa_jobqueue.outcomes import Discard, Retry, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.retention import Retention
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner.settings import RunnerSettings
from sa_jobqueue.states import TERMINAL
from tests.simulation.block import Block
from tests.simulation.checks import Checks
from tests.simulation.database import CANCELLED, DEAD, READY, RUNNING, Database, Row
from tests.simulation.machine import STAGE
from tests.simulation.process import Process
from tests.simulation.profiles import GRACE, LEASE, POLL, RESCUE, TROUBLED, Profile
from tests.simulation.rest import Rest
from tests.simulation.store import Network, Site
from tests.simulation.world import World

if TYPE_CHECKING:
    from sa_jobqueue.loop import Step
    from sa_jobqueue.states import JobStatus

#: How long everything may take to come to rest when the faults are over, in seconds.
PATIENCE = 90.0
#: How long nothing happens after that where somebody watches it, and how many statements a runner may send a second then.
QUIET, MOST_STATEMENTS = 12.0, 8.0
#: The share of schedules that are watched so.
WATCHED = 0.1
NAMES = ("first", "second")


class Schedule:
    """The history of one seed."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        *,
        steps: Mapping[str, Step[Any]] | None = None,
        fenced: bool = True,
        told: bool = False,
    ) -> None:
        self.world = STAGE.world = World(seed, preemption=profile.preemption)
        if told:
            self.world.history = []
        self._profile = profile
        self._random = self.world.random
        self.checks = Checks(
            self.world, undisturbed=profile.attempts_are_exact, retention=profile.retention or float("inf")
        )
        self.database = Database(self.world, self.checks, fenced=fenced)
        self.database.pooled = not profile.prompt and self._random.random() < 0.6
        self._networks = {name: Network(profile.trouble, profile.travel) for name in NAMES}
        self._steps = steps or {}
        self._registry = Registry()
        half_a_second = fixed(timedelta(seconds=0.5))
        self._registry.handler("work", queue="a", retry=half_a_second, timeout=profile.timeout)(self._handle)
        self.processes = [self._process(name) for name in NAMES]

    def run(self) -> list[str]:
        """What went wrong, nothing in the usual case."""
        begin = self.world.now
        self._add_jobs()
        self._plan_trouble()
        self.world.run(begin + TROUBLED)
        for network in self._networks.values():
            network.trouble = {}
        self._come_to_rest()
        if not self.checks.found:
            self._judge()
        if not self.checks.found and self._random.random() < WATCHED:
            self._stay_quiet()
        found = list(self.checks.found)
        self.world.close()
        return found

    # The course of things.

    def _come_to_rest(self) -> None:
        """The faults are over, but for outages, which end by themselves."""
        patience = self.world.now + PATIENCE
        while not self.checks.found and self.world.now < patience and not self._at_rest():
            self.world.run(self.world.now + 0.5)

    def _stay_quiet(self) -> None:
        """Nothing is left to do: the loops keep at it all the same, and none of them spins."""
        self.world.run(self._all_is_well_at() + 2 * POLL)
        self._keep_at_it()
        if self._profile.retention is not None:
            Rest(self.checks, self.database).what_is_old_is_gone(self._profile.retention + 2 * POLL)
        if self.checks.found:
            return
        living = [process for process in self.processes if not process.gone]
        before = self.database.statements
        self.world.run(self.world.now + QUIET)
        self._keep_at_it()
        rate = (self.database.statements - before) / QUIET
        if rate > MOST_STATEMENTS * len(living):
            self.checks.wrong(f"SPINS: {rate:.1f} statements a second, and nothing happens")

    def _all_is_well_at(self) -> float:
        """Jobs may be at rest while a process or a network is still to come back."""
        outages = [network.cut_until for network in self._networks.values()]
        pauses = [process.paused_until for process in self.processes]
        return max(self.world.now, self.database.down_until, *outages, *pauses)

    def _keep_at_it(self) -> None:
        for process in self.processes:
            if not process.gone:
                process.hands.keep_at_it()

    def _judge(self) -> None:
        profile, rest = self._profile, Rest(self.checks, self.database)
        rest.judge(self.processes)
        if profile.attempts_are_exact:
            rest.attempts_are_only_spent_on_runs()
        if profile.living_keep:
            rest.nobody_living_was_rescued(NAMES)
        if profile.nothing_fails:
            rest.no_lease_lapsed()
            rest.progress_is_kept()
        if profile.prompt:
            rest.what_is_due_is_begun_soon()
        if profile.reports_are_exact:
            rest.every_end_was_reported_once()

    def _at_rest(self) -> bool:
        return all(row.status in TERMINAL for row in self.database.rows.values()) and all(
            process.at_rest for process in self.processes
        )

    # What there is.

    def _process(self, name: str) -> Process:
        profile = self._profile
        age = None if profile.retention is None else timedelta(seconds=profile.retention)
        settings = RunnerSettings(
            name=name,
            queues=profile.limits,
            lease=timedelta(seconds=LEASE),
            poll_interval=timedelta(seconds=POLL),
            rescue_interval=timedelta(seconds=RESCUE),
            grace=timedelta(seconds=GRACE),
            retention=Retention() if age is None else Retention(done=age, cancelled=age),
            prune_interval=timedelta(seconds=1 if age is not None else 60),
        )
        site = Site(self.world, self.database, self._networks[name], name, settings)
        hand_back = self._random.random() < 0.7
        return Process(site, self._registry, self.checks, self._steps, hand_back=hand_back)

    def _add_jobs(self) -> None:
        profile, draw = self._profile, self._random.random
        for number in range(profile.jobs):
            inserted_at = self.world.now + draw() * profile.arrivals
            row = Row(
                self.database.new_id(),
                queue="a" if draw() < 0.7 else "b",
                run_at=inserted_at + (draw() * 3 if draw() < 0.3 else 0.0),
                max_attempts=2 + int(draw() * 3),
                poisoned=number < profile.poisoned and draw() < 0.3,
                referenced=draw() < 0.2,
            )
            if draw() < 0.1 and not profile.prompt:
                row.expires_at = row.run_at + draw() * 2
            self._insert_at(inserted_at, row)

    def _insert_at(self, at: float, row: Row) -> None:
        commit_in, heard = self._random.random() ** 3, self._random.random() < 0.9
        self.world.call_at(at, lambda: self.database.insert(row, commit_in=commit_in, heard=heard))

    def _add_late_job(self) -> None:
        """A transaction commits that was open for long, or somebody puts a due time into the past."""
        run_at = self.world.now - self._random.random() * TROUBLED
        self.database.insert(Row(self.database.new_id(), "a", run_at, max_attempts=3))

    def _plan_trouble(self) -> None:
        profile = self._profile
        self._plan(profile.restarts, lambda: self.database.restart(self._soon(profile.longest_outage)))
        self._plan(profile.partitions, self._part)
        self._plan(profile.cuts, self._cut)
        self._plan(profile.pauses, lambda: self._any_process().pause(self._random.random() * LEASE * 2))
        self._plan(profile.crashes, self._crash)
        self._plan(profile.stops, self._stop)
        self._plan(profile.locks, self._lock)
        self._plan(profile.cancels, self._cancel)
        self._plan(profile.redrives, self._redrive)
        self._plan(profile.reschedules, self._reschedule)
        self._plan(profile.late_jobs, self._add_late_job)

    def _plan(self, most: int, act: Callable[[], object]) -> None:
        for _ in range(int(self._random.random() * (most + 1))):
            self.world.call_at(self._soon(TROUBLED), act)

    def _soon(self, seconds: float) -> float:
        return self.world.now + self._random.random() * seconds

    def _any_process(self) -> Process:
        return self.processes[int(self._random.random() * len(self.processes))]

    def _any_job(self) -> int:
        return 1 + int(self._random.random() * self._profile.jobs)

    # Faults.

    def _part(self) -> None:
        """The network is away for everybody, the server isn't."""
        until = self._soon(self._profile.longest_outage)
        for network in self._networks.values():
            network.cut_until = until

    def _cut(self) -> None:
        """A network is away, the server isn't."""
        network = self._networks[self._any_process().name]
        network.cut_until = self._soon(self._profile.longest_outage)

    def _crash(self) -> None:
        """A process is killed and started again."""
        process = self._any_process()
        if not process.gone:
            self.world.note(f"{process.name} is killed")
            process.crash()
            self.processes.append(self._process(process.name))

    def _stop(self) -> None:
        """A process is stopped by its first signal, and another one started."""
        process = self._any_process()
        if not process.stopping and not process.gone:
            self.world.note(f"{process.name} is stopped")
            process.stop()
            self.processes.append(self._process(process.name))

    def _lock(self) -> None:
        """An application's transaction holds a row."""
        if (row := self.database.rows.get(self._any_job())) is not None:
            row.locked_until = max(row.locked_until, self._soon(LEASE * 1.5))

    # People, whose statements wait for rows that are locked.

    def _cancel(self) -> None:
        job_id = self._named_by_a_person(READY, RUNNING)
        if not self.database.cancel(job_id):
            self.checks.nothing_to_cancel(self.database.rows.get(job_id))

    def _redrive(self) -> None:
        self.database.redrive(self._named_by_a_person(DEAD, CANCELLED))

    def _reschedule(self) -> None:
        self.database.reschedule(self._named_by_a_person(READY), self._soon(3.0) - 1.0)

    def _named_by_a_person(self, *statuses: JobStatus) -> int:
        """Mostly one that was seen in this status; it may be in another by now."""
        seen = [row.id for row in self.database.rows.values() if row.status in statuses]
        job_id = seen[int(self._random.random() * len(seen))] if seen else self._any_job()
        self.world.sleep(self._random.random() ** 3)
        while self.database.is_locked(job_id):
            self.world.sleep(0.05)
        return job_id

    # What handlers do.

    def _handle(self, ctx: JobContext) -> Any:
        completer: Any = ctx._completer
        key = (ctx.id, completer._job.token)
        self.checks.begins(key, lost=ctx.lost)
        facts = self.checks.ledger.claims[key]
        draw = self._random.random
        if draw() < self._profile.talk:
            facts.said = draw()
            ctx.progress(facts.said)
        if self._profile.blocks and draw() < self._profile.blocks:
            block = Block(facts.owner, self.checks.ledger, completer._completions._owner)
            return self._complete(block, key)
        chance, seconds = draw(), draw() * LEASE * 2
        if self._profile.short_runs:
            seconds = 0.01 if draw() < 0.9 else seconds / 4
        elif not self._profile.long_runs:
            seconds *= draw() ** 2
        self._work(ctx, seconds, attentive=draw() < 0.3)
        if draw() < self._profile.talk:
            facts.said = draw()
            ctx.progress(facts.said)
        if chance < 0.65:
            return None
        if chance < 0.75:
            return Snooze(timedelta(seconds=draw()))
        if chance < 0.8:
            return Retry(after=timedelta(seconds=draw()))
        if chance < 0.85:
            return Discard("nobody wants it")
        raise ValueError("it failed")

    def _work(self, ctx: JobContext, seconds: float, *, attentive: bool) -> None:
        """For so long; who is attentive looks now and then whether anybody still wants it."""
        until = self.world.now + seconds
        while attentive and self.world.now + 0.5 < until:
            self.world.sleep(0.5)
            ctx.raise_if_cancelled()
            ctx.raise_if_lost()
        self.world.sleep(max(0.0, until - self.world.now))

    def _complete(self, block: Block, key: Any) -> Any:
        """The handler's own transaction, and whatever the handler does after it."""
        draw = self._random.random
        failed = False
        try:
            block.run(key, seconds=draw() ** 3 * LEASE, strict=draw() < 0.3, fails=draw() < 0.1)
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
