"""Everything of one start of a runner: the loops, their stores, the executor and the book. How it ends: `ending`."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sa_jobqueue.completion import Completions, OwnSessions
from sa_jobqueue.database import normalise_url
from sa_jobqueue.loop import Loop
from sa_jobqueue.maintenance import duties
from sa_jobqueue.maintenance.acts import Maintenance
from sa_jobqueue.records import DEFAULT_MAX_PAYLOAD_BYTES
from sa_jobqueue.runner import dispatch, leases, listening, settle, timeouts
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.completing import Completing
from sa_jobqueue.runner.ending import Ending
from sa_jobqueue.runner.executors.choice import make_executor
from sa_jobqueue.runner.intake import Intake
from sa_jobqueue.runner.pace import Lane
from sa_jobqueue.runner.refusals import RefusalsTold
from sa_jobqueue.runner.roles.dispatcher import Dispatcher
from sa_jobqueue.runner.roles.keeper import Keeper
from sa_jobqueue.runner.roles.listener import Listener
from sa_jobqueue.runner.roles.settler import Settler
from sa_jobqueue.runner.roles.timekeeper import Timekeeper
from sa_jobqueue.runner.signals import LONGEST_SLEEP
from sa_jobqueue.runner.slots import Slots
from sa_jobqueue.runner.watch import Watch
from sa_jobqueue.store.ear import Ear
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.store import Store
from sa_jobqueue.store.trouble import needs_new_session

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.runner.settings import RunnerSettings


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
        self.engine: Engine = runner_engine(url, runner_id, deadline=settings.statement_deadline)
        lease, margin = settings.lease, settings.renewal_interval

        refusals = RefusalsTold(runner_id, subscribers)
        stores = {
            name: Store(self.engine, name=runner_id, on_refused=refusals)
            for name in ("dispatch", "settle", "leases", "maintenance")
        }
        watch = Watch(settings.timeout, on_sooner=lambda began: self.timekeeper.post(began))
        self._timed = settings.timeout is not None or any(
            isinstance(handler.timeout, timedelta) for handler in registry.handlers
        )
        attempts = Attempts(subscribers, on_finished=self._take, watch=watch if self._timed else None)
        self.executor: Executor = make_executor(
            settings,
            registry,
            attempts,
            runner_id=runner_id,
            subscribers=subscribers,
            on_fault=lambda fault: self.ask_to_end(Ending("asyncio", fault)),
        )
        completing = Completing(
            self.book,
            lease=lease,
            renewal_interval=margin,
            ask=lambda: self.keeper.post(leases.RenewNow()),
        )
        #: For handlers that bring no session of their own.
        self.sessions: OwnSessions = OwnSessions(url, name=runner_id)
        lanes = {
            queue: Lane(limit, least_size=_expected_size(queue, registry))
            for queue, limit in settings.limits.items()
        }
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
                queues=tuple(settings.limits),
                book=self.book,
                executor=self.executor,
                lease=lease,
                runner_id=runner_id,
                to_settler=self._take,
                completions=Completions(completing, self.sessions, lease=lease),
                on_drained=self._drained,
                subscribers=subscribers,
            ),
        )
        slots = Slots(settings.limits, executor=self.executor, tell=self.dispatcher.post)
        self.settler: Loop[Any] = self._loop(
            stores["settle"],
            "settle",
            settle.Settling(),
            settle.step,
            Settler(
                stores["settle"],
                book=self.book,
                lease=lease,
                slots=slots,
                to_dispatcher=self.dispatcher.post,
                subscribers=subscribers,
            ),
        )
        self.intake: Intake = Intake(
            book=self.book,
            slots=slots,
            to_settler=self.settler.post,
            to_dispatcher=self.dispatcher.post,
            subscribers=subscribers,
        )
        maintenance = Maintenance(
            stores["maintenance"],
            registry=registry,
            queues=settings.limits,
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
        self.book.reports.announce_by(lambda: self.keeper.post(leases.ProgressMade()))
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

        self._make_listener(settings)

    def _make_listener(self, settings: RunnerSettings) -> None:
        """The listener, unless it is not wanted; a burst waits for nothing."""
        self.listener: Loop[Any] | None = None
        if not settings.listen or settings.burst:
            return
        engine = self.engine
        if settings.listen_url is not None:
            engine = runner_engine(
                normalise_url(settings.listen_url), self.runner_id, deadline=settings.statement_deadline
            )
        self._ear = Ear(engine, self.engine)
        hands = Listener(
            self._ear,
            runner_id=self.runner_id,
            to_dispatcher=self.dispatcher.post,
            subscribers=self.subscribers,
        )
        self.listener = self._loop(self._ear, "listen", listening.Listening(), listening.step, hands)

    def _loop(self, store: Store | Ear | None, name: str, state: Any, step: Any, role: Any) -> Loop[Any]:
        def on_end(fault: BaseException | None) -> None:
            if fault is not None:  # first of all: whatever closing does, nobody may go on without this loop
                self.ask_to_end(Ending(name, fault))
            if store is not None:
                store.close()

        def on_error(error: Exception, failures: int) -> None:
            if store is not None and needs_new_session(error, failures):
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
        store = Store(self.engine, name=self.runner_id)
        try:
            store.check_schema()
            self.sessions.prepares = store.prepares_statements
        finally:
            store.close()

    @property
    def loops(self) -> tuple[Loop[Any], ...]:
        """All that this start has, in the order in which they begin."""
        timekeeper = (self.timekeeper,) if self._timed else ()
        listener = () if self.listener is None else (self.listener,)
        return self.settler, self.keeper, self.maintenance, *timekeeper, self.dispatcher, *listener

    def start(self) -> None:
        self.executor.start()
        for loop in self.loops:
            loop.start()

    def stop_listening(self) -> None:
        """What is notified from now on is nobody's business."""
        if self.listener is not None:
            self.listener.stop()
            self._ear.interrupt()

    def _take(self, finished: settle.Finished) -> None:
        self.intake.take(finished)

    def _drained(self, fault: Exception | None) -> None:
        self.ask_to_end(Ending("burst finished") if fault is None else Ending("dispatch", fault))

    def ask_to_end(self, ending: Ending) -> None:
        """From any thread or a signal handler; the first cause counts.

        A signal handler may interrupt the very thread that waits, inside any lock: these two calls take none of its.
        """
        self._endings.append(ending)
        self._ends.put(None)

    def wait_for_end(self) -> Ending:
        """Block until somebody asks for the end, which a signal handler may do as well."""
        while not self._endings:
            with suppress(Empty):
                self._ends.get(timeout=LONGEST_SLEEP)
                self._ends.put(None)  # for whoever else waits
        return self._endings[0]

    def faults(self) -> dict[str, Ending]:
        """The first fault of each loop so far, by the loop's name."""
        faults = [ending for ending in list(self._endings) if ending.fault is not None]
        return {ending.cause: ending for ending in reversed(faults)}


def _expected_size(queue: str, registry: Registry) -> int:
    """How large any payload in a queue may turn out to be: the most that one of its handlers allows beyond the usual."""
    sizes = [handler.max_payload_bytes for handler in registry.handlers if handler.queue == queue]
    return max((size for size in sizes if size > DEFAULT_MAX_PAYLOAD_BYTES), default=1)
