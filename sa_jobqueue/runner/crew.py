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
from sa_jobqueue.runner import dispatch, leases, settle
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.executors.threads import ThreadExecutor
from sa_jobqueue.runner.pace import Lane
from sa_jobqueue.runner.roles import Dispatcher, Keeper, Settler, report_dropped
from sa_jobqueue.runner.verdict import SHUTDOWN_ERROR
from sa_jobqueue.states import Verb
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.leases import Store
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from sqlalchemy import URL

    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.executors.protocol import Execution
    from sa_jobqueue.runner.settings import RunnerSettings

#: Exit codes; a second signal gives 128 and its number.
STOPPED, FAULT, GRACE_PASSED, FORCED = 0, 1, 7, 128
#: How long, in seconds, the end waits for last writes to a database that may be away.
LAST_WRITES = 5.0
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
        self._endings: deque[Ending] = deque()
        self._ends: SimpleQueue[None] = SimpleQueue()
        self._engine = runner_engine(url, runner_id)
        lease, margin = settings.lease, settings.renewal_interval

        stores = {
            name: Store(self._engine, name=runner_id)
            for name in ("dispatch", "settle", "leases", "maintenance")
        }
        attempts = Attempts(subscribers, on_finished=self._finished)
        self.executor: ThreadExecutor = ThreadExecutor(
            settings.queues, carry_out=attempts.carry_out, let_go=attempts.let_go
        )
        lanes = {queue: Lane(limit) for queue, limit in settings.queues.items()}
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
                on_drained=lambda: self.ask_to_end(Ending("burst finished")),
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
                lease=lease,
                to_maintenance=self.maintenance.post,
                subscribers=subscribers,
            ),
        )

    def _loop(self, store: Store, name: str, state: Any, step: Any, role: Any) -> Loop[Any]:
        def on_end(fault: BaseException | None) -> None:
            if fault is not None:  # first of all: whatever closing does, nobody may go on without this loop
                self.ask_to_end(Ending(name, fault))
            store.close()

        return Loop(
            name,
            runner_id=self.runner_id,
            state=state,
            step=step,
            perform=role.perform,
            # What the server refused has not broken the connection: another one would cost both sides time.
            on_error=lambda error: None if refused(error) else store.reset(),
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
        for loop in (self.settler, self.keeper, self.maintenance, self.dispatcher):
            loop.start()

    def _finished(self, finished: settle.Finished) -> None:
        """Every outcome comes by here; only the first for a job is written."""
        if self.book.decide(finished.execution.key):
            self.settler.post(finished)
        else:
            report_dropped(finished, Landing.LOST, self.subscribers)

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
        left = self._give_up_running(hand_back=hand_back)
        last = time.monotonic() + LAST_WRITES
        self.book.wait_until_empty(last)
        unwritten = set(self.book.snapshot())
        handed_back = sum(one.key not in unwritten for one in left) if hand_back else 0
        self.book.close()
        self.settler.post(settle.StopSettling(until=last))
        self.keeper.post(leases.StopKeeping())
        gone = max(last, time.monotonic() + CLOSING)
        for loop in (self.settler, self.keeper, self.maintenance):
            loop.join(gone - time.monotonic())
        if not left:
            self.executor.join(gone - time.monotonic())
        self._engine.dispose()
        code = FAULT if ending.fault is not None else GRACE_PASSED if left or unwritten else STOPPED
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

    def _give_up_running(self, *, hand_back: bool) -> list[Execution]:
        """Decide in place of the handlers that still run; which they were.

        Handed back, their attempt counts and others may start them at once; else the lease decides.
        """
        running = self.book.decide_all()
        for execution in running:
            execution.context.mark_lost()
            if hand_back:
                shutdown = Settlement(*execution.key, Verb.RETRY, delay=_AT_ONCE, error=SHUTDOWN_ERROR)
                self.settler.post(settle.Finished(execution, shutdown, seconds=None))
        if not hand_back:
            self.book.drop(execution.key for execution in running)
        return running
