"""The runner: checks before the first claim, start and stop, signals and the exit code.

What one start consists of stands in `crew`, how it ends in `ending`, what each loop decides in `dispatch`, `settle`,
`leases` and `maintenance.duties`, what it does in `roles`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy import URL, Engine

from sa_jobqueue.completion.loops import keep_home
from sa_jobqueue.database import normalise_url
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.events import RunnerStarted, Subscribers
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner.awaited import in_thread
from sa_jobqueue.runner.crew import Crew
from sa_jobqueue.runner.ending import FORCED, STOPPED, Ending, end
from sa_jobqueue.runner.executors.choice import chosen_executors
from sa_jobqueue.runner.settings import RunnerSettings
from sa_jobqueue.runner.signals import SecondSignal, stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_jobqueue.events import Subscriber


class Runner:
    """Runs the handlers of a registry on the jobs of some queues, in threads of this process and on one event loop.

    Holds up to five connections of its own to `database`, a sixth for a moment when it begins to listen, and a pool apart
    for handlers that complete their jobs in sessions of its making; an Engine or AsyncEngine lends its URL, never its pool.
    `run()` blocks; `start()` and `stop()` embed it in a host, as does `with Runner(...):`. In a host with an event loop
    `await serve()` does what `run()` does, and `async with Runner(...):` what `with` does, without blocking the loop. A
    stopped runner may be started again.
    """

    def __init__(
        self,
        registry: Registry,
        database: str | URL | Engine | AsyncEngine,
        settings: RunnerSettings | None = None,
        *,
        subscribers: Iterable[Subscriber] = (),
    ) -> None:
        if not isinstance(registry, Registry):
            raise TypeError(
                f"Runner(): expected a Registry first, got {type(registry).__qualname__}; one registry takes in another "
                "by registry.include(other)"
            )
        if not isinstance(settings, RunnerSettings | None):
            raise TypeError(
                f"Runner(): expected RunnerSettings(...) third, got {type(settings).__qualname__}; subscribers go by name"
            )
        self.settings: RunnerSettings = settings or RunnerSettings()
        self.registry = registry
        self.id: str = self.settings.name or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._url = normalise_url(_url_of(database))
        #: An AsyncEngine's, which is for the host's event loop alone.
        self._host_engine: Engine | None = getattr(database, "sync_engine", None)
        self._subscribers = Subscribers(subscribers)
        self._lock = threading.Lock()
        #: The threads that are at starting or ending it: what they call meanwhile must not wait for them.
        self._at_it: set[int] = set()
        self._crew: Crew | None = None
        self._hand_back = False
        self._exit_code = STOPPED
        self._supervisor: threading.Thread | None = None

    def run(self, *, handle_signals: bool = True) -> int:
        """Run until a signal, a drained burst or a fault, and return the exit code.

        0: stopped with every outcome written. 1: a loop died of a fault, or a burst can claim nothing, be it for the
        database or for handlers that were given up and hold its slots. 7:
        jobs were still running when the grace period passed (handed back with `handle_signals`, their attempt counts; else
        left to their leases), or outcomes could not be written; the caller should end the process at once. 128 + n: a
        second signal n, and nothing has been waited for. Raises what `start` raises; with `handle_signals` ValueError
        outside the main thread.
        """
        causes: list[str] = []

        def answer(cause: str) -> None:
            causes.append(cause)
            self.request_stop(cause)

        try:
            with stop_on_signals(answer) if handle_signals else nullcontext():
                self._start(hand_back=handle_signals)
                try:
                    if causes:  # a signal that came before there was anything to stop
                        self.request_stop(causes[0])
                    return self._end()
                except SecondSignal:
                    raise
                except (
                    BaseException
                ):  # Ctrl-C, or what another signal handler of the host raises, as sys.exit() does
                    self.stop()
                    raise
        except SecondSignal as second:
            return FORCED + second.number

    async def serve(self) -> int:
        """Start, and return the exit code once it has ended: `run(handle_signals=False)` for a host's event loop.

        The loop is not blocked and no signals are touched. Cancelling it is a clean stop: it waits for what `stop` waits
        for and then raises CancelledError. Raises what `start` raises.
        """
        start, stop = self._stoppable(lambda: self._start(hand_back=False))
        self._keep_from_handlers()

        def run() -> int:
            start()
            return self._end()

        return await in_thread(run, on_cancel=stop)

    def _stoppable(self, start: Callable[[], None]) -> tuple[Callable[[], None], Callable[[], None]]:
        """The start, and a call for any thread that ends it, also before there is anything to stop."""
        cancelled = threading.Event()

        def begin() -> None:
            start()
            if cancelled.is_set():
                self.request_stop("cancelled")

        def stop() -> None:
            cancelled.set()
            self.request_stop("cancelled")

        return begin, stop

    def start(self) -> None:
        """Check and begin, then return. A drained burst, the fault of a loop and `request_stop()` end it as `stop()` does.

        Raises ConfigurationError for a registry that can't serve these queues, or has a handler that could never run,
        SchemaVersionError for a database without the queue's tables, SQLAlchemy's OperationalError when it can't be
        reached, RuntimeError when started already.
        """
        self._start(hand_back=False)
        # Nobody waits for the end in an embedded runner, and one that has lost a loop must not go on without it.
        supervisor = threading.Thread(target=self._end, name="sa_jobqueue-end", daemon=True)
        try:
            supervisor.start()
        except BaseException:  # no thread to be had
            self.stop()
            raise
        self._supervisor = supervisor

    def _start(self, *, hand_back: bool) -> None:
        self._check_registry()
        with self._alone():
            if self._crew is not None:
                raise RuntimeError("the runner is started already: call stop() first")
            crew = Crew(self.id, self._url, self.registry, self.settings, self._subscribers)
            # Known from here on, so that a stop asked for meanwhile is not lost.
            self._crew, self._hand_back = crew, hand_back
            try:
                crew.check_schema()
            except BaseException:
                self._crew = None
                raise
        try:
            self._subscribers.emit(
                RunnerStarted(
                    runner_id=self.id,
                    queues=self.settings.limits,
                    kinds=self.registry.kinds,
                    executors=chosen_executors(self.settings, self.registry),
                )
            )
            with self._alone():
                if self._crew is crew:  # else it was stopped already
                    crew.start()
        except BaseException as error:  # no thread to be had, or what a signal handler of the host raises
            with self._alone():
                if self._crew is crew:
                    self._crew = None
                    end(crew, Ending("start", error), hand_back=False)
            raise

    def request_stop(self, cause: str = "stop requested") -> None:
        """Ask for the end, from any thread or a signal handler; returns at once."""
        if (crew := self._crew) is not None:
            crew.ask_to_end(Ending(cause))

    def stop(self) -> None:
        """Claim no more, give back what never began, wait up to the grace period; idempotent, from any thread.

        What still runs after that is told that its lease is lost, and cancelled when it is async; its outcome is not
        written any more, and others run the job again when the lease has ended. Whoever interrupts or is called by the
        thread that starts or ends the runner, a signal handler or a subscriber, gets no wait: the end goes on when it
        returns. Not for handlers and other subscribers, which would wait for themselves: they call `request_stop()`.
        """
        self.request_stop()
        if threading.get_ident() in self._at_it:
            return
        self._end()
        if (supervisor := self._supervisor) is not None:
            supervisor.join()

    def __enter__(self) -> Runner:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Runner:
        start, stop = self._stoppable(self.start)
        self._keep_from_handlers()
        try:
            await in_thread(start, on_cancel=stop)
        except asyncio.CancelledError:  # nobody will leave what nobody has entered
            await in_thread(self.stop)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.stop)

    def _keep_from_handlers(self) -> None:
        if self._host_engine is not None:
            keep_home(self._host_engine)

    def _check_registry(self) -> None:
        self.registry.check()
        handlers = self.registry.handlers
        if not handlers:
            raise ConfigurationError(
                "the registry has no handlers: register some, or include() the registries that have"
            )
        self.settings = self.settings.serving(self.registry.queues)
        if not set(self.settings.limits) & set(self.registry.queues):
            known = ", ".join(f"{handler.kind} (queue {handler.queue})" for handler in handlers) or "none"
            raise ConfigurationError(
                f"no handler on the queues asked for ({', '.join(self.settings.limits)}); registered handlers: {known}"
            )

    def _end(self) -> int:
        crew = self._crew
        if crew is None:
            return self._exit_code
        ending = crew.wait_for_end()
        with self._alone():
            if self._crew is crew:  # else another thread has ended it meanwhile
                self._exit_code = end(crew, ending, hand_back=self._hand_back)
                self._crew = None
            return self._exit_code

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Start or end it: one thread at a time, and nothing of the kind from within."""
        me = threading.get_ident()
        if me in self._at_it:
            raise RuntimeError(
                "the runner is ending, or starting: start it once that is over, not from within"
            )
        try:
            self._at_it.add(me)
            with self._lock:
                yield
        finally:
            self._at_it.discard(me)


def _url_of(database: object) -> str | URL:
    engine = getattr(
        database, "sync_engine", database
    )  # an AsyncEngine needs greenlet and so is not imported here
    if isinstance(engine, Engine):
        return engine.url
    if isinstance(engine, str | URL):
        return engine
    raise TypeError(
        f"Runner(): expected the database second, as a URL or an Engine, got {type(database).__qualname__}"
    )
