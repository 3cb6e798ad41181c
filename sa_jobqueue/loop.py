"""The one engine of every background loop: it carries events to a pure step and the step's actions to the world.

A loop is a `step(state, events, now) -> (state, actions)` without I/O, clock or randomness, and a `perform(action)`
that does one action and may answer with an event. The steps can so be driven by a test with a clock of its own.
Here lives the thread, its inbox, and what every loop owes: an error never ends it silently, a failing action is
reported once and its recovery once, and a fault in the step itself ends the runner.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sa_jobqueue.events import LoopFailed, LoopRecovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sa_jobqueue.events import Subscribers

StateT = TypeVar("StateT")

#: How long a loop waits before it tries again after its first failure, and at most, in seconds.
FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Action: be called again at this time at the latest, with no events; None waits for an event alone."""

    at: float | None


@dataclass(frozen=True, slots=True)
class End:
    """Action: the loop has nothing left to do."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Event: an action raised. `jitter` in [0, 1) is the step's only source of chance."""

    action: Any
    error: Exception
    jitter: float


def backoff(failures: int, jitter: float) -> float:
    """Seconds until the next try after so many failures in a row: doubling, capped, and at least half jittered."""
    longest = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(failures - 1, 16))
    return longest * (0.5 + jitter / 2)


class Loop(Generic[StateT]):
    """One thread around one step function; other threads talk to it by `post`."""

    def __init__(
        self,
        name: str,
        *,
        state: StateT,
        step: Callable[[StateT, Sequence[Any], float], tuple[StateT, Iterable[Any]]],
        perform: Callable[[Any], Any],
        on_error: Callable[[], None],
        on_end: Callable[[BaseException | None], None],
        subscribers: Subscribers,
    ) -> None:
        self.name = name
        self._state = state
        self._step = step
        self._perform = perform
        self._on_error = on_error
        self._on_end = on_end
        self._subscribers = subscribers
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._failing_since: float | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"sa_jobqueue-{name}", daemon=True)

    def post(self, event: Any) -> None:
        """Hand an event to the loop, from any thread; never blocks."""
        self._inbox.put(event)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end; False when it still runs."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        fault: BaseException | None = None
        try:
            self._turn_until_end()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the runner must know that this loop is gone
            fault = error
        finally:
            self._on_end(fault)

    def _turn_until_end(self) -> None:
        wake_at: float | None = time.monotonic()
        while True:
            events: Sequence[Any] = self._gather(wake_at)
            wake_at = None
            while True:
                self._state, actions = self._step(self._state, events, time.monotonic())
                answers = []
                for action in actions:
                    match action:
                        case WaitUntil(at):
                            wake_at = at
                        case End():
                            return
                        case _:
                            if (answer := self._attempt(action)) is not None:
                                answers.append(answer)
                if not answers:
                    break
                events = answers

    def _gather(self, wake_at: float | None) -> list[Any]:
        """Wait for the first event or the time, then take all that are there: one step handles them together."""
        events = []
        try:
            if wake_at is None:
                events.append(self._inbox.get())
            elif (timeout := wake_at - time.monotonic()) > 0:
                events.append(self._inbox.get(timeout=timeout))
            while True:
                events.append(self._inbox.get_nowait())
        except Empty:
            return events

    def _attempt(self, action: Any) -> Any:
        try:
            answer = self._perform(action)
        except Exception as error:  # noqa: BLE001 - any failing action is the step's to answer, with a backoff
            self._failures += 1
            if self._failing_since is None:
                self._failing_since = time.monotonic()
                self._subscribers.emit(LoopFailed(self.name, error))
            self._on_error()
            return Failed(action, error, random.random())  # noqa: S311 - spreads retries, guards nothing
        if self._failing_since is not None:
            elapsed = time.monotonic() - self._failing_since
            self._subscribers.emit(LoopRecovered(self.name, elapsed, self._failures))
            self._failing_since, self._failures = None, 0
        return answer
