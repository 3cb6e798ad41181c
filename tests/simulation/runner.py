"""One runner without threads: the real steps, hands, engine, book and attempts, its threads tasks of the world."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_jobqueue.completion import Completions
from sa_jobqueue.events import Subscribers
from sa_jobqueue.loop import Loop, Step
from sa_jobqueue.maintenance import duties
from sa_jobqueue.maintenance.acts import Maintenance
from sa_jobqueue.records import Settlement
from sa_jobqueue.registry import Registry
from sa_jobqueue.retention import Retention
from sa_jobqueue.runner import dispatch, leases, settle, timeouts
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.dispatch_messages import StopClaiming
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.runner.intake import Intake
from sa_jobqueue.runner.pace import Lane
from sa_jobqueue.runner.roles.dispatcher import Dispatcher
from sa_jobqueue.runner.roles.keeper import Keeper
from sa_jobqueue.runner.roles.settler import Settler
from sa_jobqueue.runner.roles.timekeeper import Timekeeper
from sa_jobqueue.runner.slots import Slots
from sa_jobqueue.runner.watch import Watch
from sa_jobqueue.states import Verb
from sa_jobqueue.store.trouble import needs_new_session
from tests.simulation.block import Block, SimulatedCompleting
from tests.simulation.checks import Checks
from tests.simulation.database import Database
from tests.simulation.store import FakeStore, Network
from tests.simulation.world import Group, Task, World

LEASE, INTERVAL, POLL, RESCUE, GRACE = 6.0, 2.0, 2.0, 2.0, 3.0


class _NoSessions:
    """Handlers here have blocks of the world's own."""

    def session(self) -> Session:
        raise AssertionError("no handler asks for one")

    def async_session(self) -> AsyncSession:
        raise AssertionError("no handler asks for one")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one runner; a mutant replaces one of them."""

    dispatch: Step[dispatch.Dispatch] = dispatch.step
    settle: Step[settle.Settling] = settle.step
    leases: Step[leases.Keeping] = leases.step
    duties: Step[duties.Maintaining] = duties.step
    timeouts: Step[timeouts.Timing] = timeouts.step


class SimulatedLoop(Loop[Any]):
    """The real engine: only its thread and its inbox are the world's."""

    def __init__(self, world: World, group: Group, checks: Checks, book: Book, **given: Any) -> None:
        super().__init__(**given)
        self.book = book
        self._world = world
        self.group = group
        self._checks = checks
        self._events: deque[Any] = deque()
        self._task: Task | None = None

    @property
    def state(self) -> Any:
        return self._state

    @property
    def ended(self) -> bool:
        return self._task is not None and self._task.green.dead

    def start(self) -> None:
        self._task = self._world.spawn(self.group, self._run)

    def post(self, event: Any) -> None:
        self._events.append(event)
        if self._task is not None and self._task is not self._world.current:
            self._world.wake(self._task)

    def _gather(self, events: list[Any], wake_at: float | None) -> list[Any]:
        if not events and not self._events and (wake_at is None or wake_at > self._world.now):
            self._world.wait(wake_at)
        events += self._events
        self._events.clear()
        self._checks.after_gather(self, events)
        return events

    def _attempt(self, action: Any) -> Any:
        self._checks.before_action(self, action)
        answer = super()._attempt(action)
        self._checks.after_action(self, answer)
        return answer


class SimulatedExecutor:
    """As many tasks for each queue as its limit."""

    def __init__(
        self, world: World, group: Group, limits: dict[str, int], attempts: Attempts, block: Block
    ) -> None:
        self._world = world
        self._group = group
        self._attempts = attempts
        self._block = block
        self._free = dict(limits)
        self._waiting: dict[str, deque[Execution]] = {queue: deque() for queue in limits}
        self._stopped = False

    @property
    def idle(self) -> bool:
        return self.running == 0 and not any(self._waiting.values())

    running = 0

    def start(self) -> None: ...

    def submit(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._waiting[execution.job.queue].append(execution)
            if self._free[execution.job.queue]:
                self._free[execution.job.queue] -= 1
                self._world.spawn(self._group, lambda queue=execution.job.queue: self._work(queue))

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        taken = [execution for queue in queues for execution in self._waiting[queue]]
        for queue in queues:
            self._waiting[queue].clear()
        return taken

    def waiting(self, queue: str) -> int:
        return len(self._waiting[queue])

    def interrupt(self, execution: Execution, cause: Interruption) -> bool:
        return execution.interrupt(cause)

    def stop(self) -> None:
        self._stopped = True

    def join(self, timeout: float) -> bool:
        return self.idle

    def _work(self, queue: str) -> None:
        while self._waiting[queue]:
            execution = self._waiting[queue].popleft()
            self.running += 1
            if (task := self._world.current) is not None:
                task.carries, task.block = execution, self._block
            (self._attempts.let_go if self._stopped else self._attempts.carry_out)(execution)
            self.running -= 1
        self._free[queue] += 1


@dataclass
class SimulatedRunner:
    """One start of one runner; `crash`, `pause` and `stop` are what may happen to it."""

    name: str
    world: World
    database: Database
    network: Network
    registry: Registry
    checks: Checks
    steps: Steps
    limits: dict[str, int]
    group: Group = field(default_factory=Group)
    book: Book = field(default_factory=Book)
    stopped: bool = False
    gone: bool = False

    def __post_init__(self) -> None:
        subscribers = Subscribers([self.checks.on_event])
        lease, margin = timedelta(seconds=LEASE), timedelta(seconds=INTERVAL)
        self.subscribers = subscribers
        watch = Watch(None, on_sooner=lambda began: self.timekeeper.post(began))
        attempts = Attempts(subscribers, on_finished=self._take, watch=watch)
        completing = SimulatedCompleting(
            self.world,
            self.book,
            lease=lease,
            renewal_interval=margin,
            ask=lambda: self.keeper.post(leases.RenewNow()),
        )
        block = Block(self.world, self.database, self.network, completing, lease=LEASE)
        self.executor = SimulatedExecutor(self.world, self.group, self.limits, attempts, block)
        self.dispatcher = self._loop(
            "dispatch",
            dispatch.Dispatch(
                lanes={queue: Lane(limit) for queue, limit in self.limits.items()},
                poll_interval=POLL,
                lease=LEASE,
                renewal_interval=INTERVAL,
                token=UUID(int=self.world.random.getrandbits(128)),
            ),
            self.steps.dispatch,
            lambda store: (
                Dispatcher(
                    store,
                    registry=self.registry,
                    queues=tuple(self.limits),
                    book=self.book,
                    executor=self.executor,
                    lease=lease,
                    runner_id=self.name,
                    to_settler=self._take,
                    completions=Completions(completing, _NoSessions(), lease=lease),
                    on_drained=self._never,
                    subscribers=subscribers,
                ).perform
            ),
        )
        slots = Slots(self.limits, executor=self.executor, tell=self.dispatcher.post)
        self.settler = self._loop(
            "settle",
            settle.Settling(),
            self.steps.settle,
            lambda store: (
                Settler(
                    store,
                    book=self.book,
                    lease=lease,
                    slots=slots,
                    to_dispatcher=self.dispatcher.post,
                    subscribers=subscribers,
                ).perform
            ),
        )
        self.intake = Intake(
            book=self.book,
            slots=slots,
            to_settler=self.settler.post,
            to_dispatcher=self.dispatcher.post,
            subscribers=subscribers,
        )
        self.maintenance = self._loop(
            "maintenance",
            duties.Maintaining(
                Maintenance.duties(
                    rescue_interval=timedelta(seconds=RESCUE), prune_interval=timedelta(minutes=1)
                ),
                patience=INTERVAL,
            ),
            self.steps.duties,
            lambda store: (
                Maintenance(
                    store,
                    registry=self.registry,
                    queues=self.limits,
                    lease=lease,
                    margin=margin,
                    retention=Retention(),
                    runner_id=self.name,
                    subscribers=subscribers,
                ).perform
            ),
        )
        self.keeper = self._loop(
            "leases",
            leases.Keeping(INTERVAL),
            self.steps.leases,
            lambda store: (
                Keeper(
                    store,
                    book=self.book,
                    executor=self.executor,
                    lease=lease,
                    to_maintenance=self.maintenance.post,
                    subscribers=subscribers,
                ).perform
            ),
        )
        self.timekeeper = self._loop(
            "timeouts",
            timeouts.Timing(LEASE - INTERVAL),
            self.steps.timeouts,
            lambda _store: (
                Timekeeper(
                    watch,
                    book=self.book,
                    executor=self.executor,
                    patience=lease - margin,
                    to_settler=self.settler.post,
                    subscribers=subscribers,
                ).perform
            ),
        )
        for loop in self.loops:
            loop.start()

    @property
    def loops(self) -> tuple[SimulatedLoop, ...]:
        return self.settler, self.keeper, self.maintenance, self.timekeeper, self.dispatcher

    @property
    def idle(self) -> bool:
        """Nothing is held, and nothing is in doubt."""
        lanes = self.dispatcher.state.lanes.values()
        return (
            not len(self.book)
            and not any(lane.held for lane in lanes)
            and not self.dispatcher.state.unwritten
            and not self.dispatcher.state.lost
            and self.executor.idle
        )

    def pause(self, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT so many seconds later."""
        self.group.paused_until = max(self.group.paused_until, self.world.now + seconds)

    def crash(self) -> None:
        """As SIGKILL."""
        self.gone = True
        self.world.kill(self.group)

    def stop(self) -> None:
        """The end of a runner that owns its process, in the order in which the crew does it."""
        if not self.stopped and not self.gone:
            self.stopped = self.group.stopping = True
            self.world.spawn(self.group, self._end)

    def _end(self) -> None:
        world, grace_ends = self.world, self.world.now + GRACE
        self.executor.stop()
        self.maintenance.stop()
        self.dispatcher.post(StopClaiming(until=grace_ends))
        while len(self.book) and world.now < grace_ends:
            world.sleep(0.1)
        for execution in self.book.decide_all():
            execution.context.mark_lost()
            if execution.completed:
                self.book.drop([execution.key])
                continue
            shutdown = Settlement(*execution.key, Verb.RETRY, delay=timedelta(0), error="shutdown")
            self.settler.post(settle.in_place(execution, shutdown))
        last = world.now + GRACE
        while len(self.book) and world.now < last:
            world.sleep(0.1)
        self.settler.post(settle.StopSettling(until=last))
        self.keeper.stop()
        self.timekeeper.stop()
        while not all(loop.ended for loop in self.loops):
            world.sleep(0.1)
        self.gone = True

    def _take(self, finished: settle.Finished) -> None:
        self.intake.take(finished)

    def _loop(
        self, name: str, state: Any, step: Step[Any], hands: Callable[[Any], Callable[[Any], Any]]
    ) -> SimulatedLoop:
        store = FakeStore(self.world, self.database, self.network, name=self.name, lease=LEASE)
        return SimulatedLoop(
            self.world,
            self.group,
            self.checks,
            self.book,
            name=name,
            runner_id=self.name,
            state=state,
            step=step,
            perform=hands(store),
            on_error=lambda error, failures: store.reset() if needs_new_session(error, failures) else None,
            on_end=lambda fault: self._on_end(name, fault),
            subscribers=self.subscribers,
        )

    def _on_end(self, name: str, fault: BaseException | None) -> None:
        if fault is not None and not self.group.dead:
            self.checks.wrong(f"{self.name}: the loop {name} died: {fault!r}")

    def _never(self) -> None:
        self.checks.wrong(f"{self.name}: drained, and no burst")
