"""The one engine of every background loop: it carries events to a pure step and the step's actions to the world.

A loop is a `step(state, events, now) -> (state, actions)` without I/O, clock or randomness, and a `perform(action)`
that does one action and may answer with an event. The steps can so be driven by a test with a clock of its own.
Here lives the thread, its inbox, and what every loop owes: an error never ends it silently, a failing action is
reported when it begins and when it is over, and a fault in the step itself ends the runner.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from sa_jobqueue.events import LoopFailed, LoopRecovered, Subscribers
from sa_jobqueue.failures import describe_error

StateT = TypeVar("StateT")
_What = tuple[type[Any], Any]
#: How an event gets to a loop, from whatever thread.
Post = Callable[[Any], None]
Step = Callable[[StateT, Sequence[Any], float], tuple[StateT, Iterable[Any]]]

#: How long a loop waits before it tries again after its first failure, and at most, in seconds.
FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 5.0
#: A loop that goes on failing says so again after so many seconds.
REMINDER = 60.0


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Action: be called again at this time at the latest, with no events; None waits for an event alone."""

    at: float | None


@dataclass(frozen=True, slots=True)
class End:
    """Action: the loop has nothing left to do."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Event: an action raised; it may be tried again after `retry_in` seconds, which grow with every failure."""

    action: Any
    error: Exception
    retry_in: float


#: Event: end now, whatever is due; no step sees it.
_STOP = object()


def backoff(failures: int, jitter: float) -> float:
    """Seconds until the next try after so many failures in a row: doubling, capped, and half of it jittered."""
    longest = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures - 1, 16))
    return longest * (0.5 + jitter / 2)


class Loop(Generic[StateT]):
    """One thread around one step function; other threads talk to it by `post`.

    `on_error` is called after every failing action with its error, and with how often that has failed in a row, to drop
    what it may have broken; `on_end` once, in the loop's own thread, with the fault that ended it or None. An action with
    a `name` is told apart by it from others of its type: what fails is over when the same thing works again, and not when
    something else does, unless that says of itself that it `recovers` the loop.
    """

    def __init__(
        self,
        name: str,
        *,
        runner_id: str,
        state: StateT,
        step: Step[StateT],
        perform: Callable[[Any], Any],
        on_error: Callable[[Exception, int], None],
        on_end: Callable[[BaseException | None], None],
        subscribers: Subscribers,
    ) -> None:
        self.name = name
        self._runner_id = runner_id
        self._state = state
        self._step = step
        self._perform = perform
        self._on_error = on_error
        self._on_end = on_end
        self._subscribers = subscribers
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._failing: dict[_What, int] = {}
        self._failures = 0
        self._failing_since = self._reported_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"sa_jobqueue-{name}", daemon=True)

    def post(self, event: Any) -> None:
        """Hand an event to the loop, from any thread; never blocks."""
        self._inbox.put(event)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the action that is under way; what else was posted is dropped. From any thread; returns at once."""
        self.post(_STOP)

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; False when it still runs after `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _run(self) -> None:
        fault: BaseException | None = None
        try:
            self._turn_until_end()
        except BaseException as error:  # whatever it is, the runner must learn that this loop is gone
            fault = error
        finally:
            self._on_end(fault)

    def _turn_until_end(self) -> None:
        events: Sequence[Any] = ()
        while True:
            self._state, actions = self._step(self._state, events, time.monotonic())
            wake_at: float | None = None
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
            events = self._gather(answers, wake_at)
            if any(event is _STOP for event in events):
                return

    def _gather(self, events: list[Any], wake_at: float | None) -> list[Any]:
        """Take all that is there after the answers: one step handles them together. Without any, wait for the first.

        The inbox is read after every answer too, or a loop that always has something to do would never hear a stop.
        """
        try:
            if not events:
                if wake_at is None:
                    events.append(self._inbox.get())
                elif (timeout := wake_at - time.monotonic()) > 0:
                    events.append(self._inbox.get(timeout=min(timeout, threading.TIMEOUT_MAX)))
            while True:
                events.append(self._inbox.get_nowait())
        except Empty:
            return events

    def _attempt(self, action: Any) -> Any:
        try:
            answer = self._perform(action)
        except Exception as error:  # any failing action is the step's to answer, after a pause
            return self._failed(action, error)
        if self._failing:
            self._works(action)
        return answer

    def _works(self, action: Any) -> None:
        self._failing.pop(_what(action), None)
        if self._failing and not getattr(action, "recovers", False):
            return
        self._failing.clear()
        after = timedelta(seconds=time.monotonic() - self._failing_since)
        self._subscribers.emit(
            LoopRecovered(runner_id=self._runner_id, loop=self.name, failures=self._failures, after=after)
        )

    def _failed(self, action: Any, error: Exception) -> Failed:
        now = time.monotonic()
        begins, what = not self._failing, _what(action)
        if begins:
            self._failing_since, self._failures = now, 0
        self._failures += 1
        self._failing[what] = self._failing.get(what, 0) + 1
        retry_in = backoff(self._failing[what], random.random())  # noqa: S311 - spreads retries, guards nothing
        if begins or now - self._reported_at >= REMINDER:
            self._reported_at = now
            self._subscribers.emit(
                LoopFailed(
                    runner_id=self._runner_id,
                    loop=self.name,
                    error=describe_error(error),
                    failures=self._failures,
                    retry_in=timedelta(seconds=retry_in),
                )
            )
        self._on_error(error, self._failing[what])
        return Failed(action, error, retry_in)


def _what(action: Any) -> _What:
    return type(action), getattr(action, "name", None)
