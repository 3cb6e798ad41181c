"""Everything of one start of a runner: the loops, their stores, the executor and the book, and the order of the end."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sa_jobqueue.events import LoopFailed, RunnerStopped, RunnerStopping, Subscribers
from sa_jobqueue.failures import describe_error
from sa_jobqueue.loop import Loop
from sa_jobqueue.maintenance import duties
from sa_jobqueue.maintenance.acts import Maintenance
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.runner import dispatch, leases, settle, timeouts
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.executors.choice import make_executor
from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.runner.pace import Lane
from sa_jobqueue.runner.refusals import RefusalsTold
from sa_jobqueue.runner.roles import Dispatcher, Keeper, Settler, report_dropped
from sa_jobqueue.runner.timekeeper import Timekeeper, Watch
from sa_jobqueue.runner.verdict import SHUTDOWN_ERROR
from sa_jobqueue.states import Verb
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.leases import Store
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from sqlalchemy import URL

    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.executors.protocol import Execution, Executor
    from sa_jobqueue.runner.settings import RunnerSettings

#: Exit codes; a second signal gives 128 and its number.
STOPPED, FAULT, GRACE_PASSED, FORCED = 0, 1, 7, 128
#: How long, in seconds, the end waits for last writes to a database that may be away.
LAST_WRITES = 5.0
#: How long, in seconds, async handlers may clean up after they were cancelled at the end of the grace period.
CLEAN_UP = 2.0
#: How long, in seconds, threads with nothing left to write get to close their connections.
CLOSING = 1.0
_AT_ONCE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a runner ends; with a fault, `cause` is the loop that died of it."""

    cause: str
    fault: BaseException | None = None


class Crew:
    """One start of a runner, from its first connection to its last."""

    def __init__(
        self,
        runner_id: str,
        url: URL,
        registry: Registry,
        settings: RunnerSettings,
        subscribers: Subscribers,
    ) -> None:
        self.runner_id = runner_id
        self.settings = settings
        self.subscribers = subscribers
        self.book: Book = Book()
        self._handed_back: list[Execution] = []
        self._endings: deque[Ending] = deque()
        self._ends: SimpleQueue[None] = SimpleQueue()
        self._engine = runner_engine(url, runner_id, deadline=settings.statement_deadline)
        lease, margin = settings.lease, settings.renewal_interval

        refusals = RefusalsTold(runner_id, subscribers)
        stores = {
            name: Store(self._engine, name=runner_id, on_refused=refusals)
            for name in ("dispatch", "settle", "leases", "maintenance")
        }
        watch = Watch(settings.timeout, on_sooner=lambda began: self.timekeeper.post(began))
        self._timed = settings.timeout is not None or any(
            isinstance(handler.timeout, timedelta) for handler in registry.handlers
        )
        attempts = Attempts(subscribers, on_finished=self._finished, watch=watch if self._timed else None)
        self.executor: Executor = make_executor(
            settings,
            registry,
            attempts,
            runner_id=runner_id,
            subscribers=subscribers,
            on_fault=lambda fault: self.ask_to_end(Ending("asyncio", fault)),
        )
        lanes = {queue: Lane(limit) for queue, limit in settings.limits.items()}
        self.dispatcher: Loop[Any] = self._loop(
            stores["dispatch"],
            "dispatch",
            dispatch.Dispatch(
                lanes=lanes,
                poll_interval=settings.poll_interval.total_seconds(),
                lease=lease.total_seconds(),
                renewal_interval=margin.total_seconds(),
                token=uuid4(),
                burst=settings.burst,
            ),
            dispatch.step,
            Dispatcher(
                stores["dispatch"],
                registry=registry,
                book=self.book,
                executor=self.executor,
                lease=lease,
                runner_id=runner_id,
                to_settler=self._finished,
                on_drained=self._drained,
                subscribers=subscribers,
            ),
        )
        self.settler: Loop[Any] = self._loop(
            stores["settle"],
            "settle",
            settle.Settling(),
            settle.step,
            Settler(
                stores["settle"],
                book=self.book,
                lease=lease,
                to_dispatcher=self.dispatcher.post,
                subscribers=subscribers,
            ),
        )
        maintenance = Maintenance(
            stores["maintenance"],
            registry=registry,
            queues=settings.queues,
            lease=lease,
            margin=margin,
            retention=settings.retention,
            runner_id=runner_id,
            subscribers=subscribers,
        )
        self.maintenance: Loop[Any] = self._loop(
            stores["maintenance"],
            "maintenance",
            duties.Maintaining(
                maintenance.duties(
                    rescue_interval=settings.rescue_interval, prune_interval=settings.prune_interval
                ),
                margin.total_seconds(),
            ),
            duties.step,
            maintenance,
        )
        self.keeper: Loop[Any] = self._loop(
            stores["leases"],
            "leases",
            leases.Keeping(margin.total_seconds()),
            leases.step,
            Keeper(
                stores["leases"],
                book=self.book,
                executor=self.executor,
                lease=lease,
                to_maintenance=self.maintenance.post,
                subscribers=subscribers,
            ),
        )
        patience = lease - margin
        self.timekeeper: Loop[Any] = self._loop(
            None,
            "timeouts",
            timeouts.Timing(patience.total_seconds()),
            timeouts.step,
            Timekeeper(
                watch,
                book=self.book,
                executor=self.executor,
                patience=patience,
                to_settler=self.settler.post,
                subscribers=subscribers,
            ),
        )

    def _loop(self, store: Store | None, name: str, state: Any, step: Any, role: Any) -> Loop[Any]:
        def on_end(fault: BaseException | None) -> None:
            if fault is not None:  # first of all: whatever closing does, nobody may go on without this loop
                self.ask_to_end(Ending(name, fault))
            if store is not None:
                store.close()

        def on_error(error: Exception) -> None:
            # What the server refused has not broken the connection: another one would cost both sides time.
            if store is not None and not refused(error):
                store.reset()

        return Loop(
            name,
            runner_id=self.runner_id,
            state=state,
            step=step,
            perform=role.perform,
            on_error=on_error,
            on_end=on_end,
            subscribers=self.subscribers,
        )

    def check_schema(self) -> None:
        store = Store(self._engine, name=self.runner_id)
        try:
            store.check_schema()
        finally:
            store.close()

    def start(self) -> None:
        self.executor.start()
        timekeeper = (self.timekeeper,) if self._timed else ()
        for loop in (self.settler, self.keeper, self.maintenance, *timekeeper, self.dispatcher):
            loop.start()

    def _finished(self, finished: settle.Finished) -> None:
        """Every outcome of a handler comes by here; only the first for a job is written."""
        if self.book.decide(finished.execution.key):
            if (finished.settlement.error or "").startswith(SHUTDOWN_ERROR):
                self._handed_back.append(finished.execution)
            self.settler.post(finished)
        else:
            # Its slot is free all the same, and what was decided in its place is being written already.
            self.dispatcher.post(settle.freed([finished]))
            self.dispatcher.post(dispatch.Written(1))
            report_dropped(finished, Landing.LOST, self.subscribers)

    def _drained(self, fault: Exception | None) -> None:
        self.ask_to_end(Ending("burst finished") if fault is None else Ending("dispatch", fault))

    def ask_to_end(self, ending: Ending) -> None:
        """From any thread or a signal handler; the first cause counts.

        A signal handler may interrupt the very thread that waits, inside any lock: these two calls take none of its.
        """
        self._endings.append(ending)
        self._ends.put(None)

    def wait_for_end(self) -> Ending:
        """Block until somebody asks for the end."""
        self._ends.get()
        self._ends.put(None)  # for whoever else waits
        return self._endings[0]

    def end(self, ending: Ending, *, hand_back: bool) -> int:
        """Stop claiming, wait for what runs, write what can be written; the exit code."""
        now = time.monotonic()
        grace_ends = now + self.settings.grace.total_seconds()
        self._report_end(ending)
        self.executor.stop()
        self.maintenance.post(duties.StopMaintaining())
        self.dispatcher.post(dispatch.StopClaiming(until=now + LAST_WRITES))
        self.dispatcher.join(max(grace_ends, now + LAST_WRITES) - now)
        self.book.wait_until_empty(grace_ends)
        left = self._hand_back_running() if hand_back else self._leave_running_to_leases()
        last = time.monotonic() + LAST_WRITES
        self.book.wait_until_empty(last)
        unwritten = set(self.book.snapshot())
        handed_back = sum(one.key not in unwritten for one in self._handed_back)
        self.book.close()
        self.settler.post(settle.StopSettling(until=last))
        self.keeper.post(leases.StopKeeping())
        self.timekeeper.post(timeouts.StopTiming())
        gone = max(last, time.monotonic() + CLOSING)
        for loop in (self.settler, self.keeper, self.maintenance, self.timekeeper):
            loop.join(gone - time.monotonic())
        if not left:
            self.executor.join(gone - time.monotonic())
        elif not hand_back:  # the host lives on: what was cancelled is through soon
            self.executor.join(CLEAN_UP)
        self._engine.dispose()
        late = left or self._handed_back or unwritten
        code = FAULT if ending.fault is not None else GRACE_PASSED if late else STOPPED
        self.subscribers.emit(
            RunnerStopped(
                runner_id=self.runner_id,
                exit_code=code,
                handed_back=handed_back,
                left_to_leases=len(unwritten) if hand_back else len(left) + len(unwritten),
            )
        )
        return code

    def _report_end(self, ending: Ending) -> None:
        cause = ending.cause
        if ending.fault is not None:
            self.subscribers.emit(
                LoopFailed(
                    runner_id=self.runner_id,
                    loop=ending.cause,
                    error=describe_error(ending.fault),
                    failures=1,
                    retry_in=None,
                )
            )
            cause = f"the loop {ending.cause} died"
        self.subscribers.emit(
            RunnerStopping(
                runner_id=self.runner_id, cause=cause, running=len(self.book), grace=self.settings.grace
            )
        )

    def _hand_back_running(self) -> list[Execution]:
        """End what still runs, its attempt counting, so that others may start it at once; those that refuse to end.

        Async handlers are cancelled and may clean up for a moment; whoever runs after that is decided in its place.
        """
        cancelled = [
            one.key for one in self.book.undecided() if self.executor.interrupt(one, Interruption.SHUTDOWN)
        ]
        self.book.wait_until_decided(cancelled, time.monotonic() + CLEAN_UP)
        running = self.book.decide_all()
        for execution in running:
            execution.context.mark_lost()
            shutdown = Settlement(*execution.key, Verb.RETRY, delay=_AT_ONCE, error=SHUTDOWN_ERROR)
            self.settler.post(settle.Finished(execution, shutdown, seconds=None, still_runs=True))
        self._handed_back += running
        return running

    def _leave_running_to_leases(self) -> list[Execution]:
        """Write nothing about what still runs, and cancel what can be; which they were."""
        running = self.book.decide_all()
        # Before anybody is cancelled: no word that they say on their way out may be written.
        self.book.close()
        self.book.drop(execution.key for execution in running)
        for execution in running:
            execution.context.mark_lost()
            self.executor.interrupt(execution, Interruption.SHUTDOWN)
        return running
