"""The engine of the loops, with real threads: errors, recoveries, faults, the inbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sa_jobqueue.events import LoopFailed, LoopRecovered, Subscribers
from sa_jobqueue.loop import FIRST_BACKOFF, LONGEST_BACKOFF, End, Failed, Loop, WaitUntil, backoff
from tests.support.runners import Recorder
from tests.support.waiting import PATIENCE, wait_until


@dataclass(frozen=True)
class Work:
    """An action that fails or works as the test says."""

    name: str = "work"


@dataclass(frozen=True)
class Report:
    """An action that always works."""


class _Harness:
    """One loop around a function of its events; what it did is kept."""

    def __init__(self, decide: Callable[[Sequence[Any]], list[Any]], perform: Callable[[Any], Any]) -> None:
        self.recorder = Recorder()
        self.resets: list[int] = []
        self.ended_with: list[BaseException | None] = []
        self.ended = threading.Event()
        self.loop: Loop[None] = Loop(
            "test",
            runner_id="me",
            state=None,
            step=lambda _state, events, _now: (None, decide(events)),
            perform=perform,
            on_error=self._reset,
            on_end=self._end,
            subscribers=Subscribers([self.recorder]),
        )

    def _reset(self, _error: Exception, failures: int) -> None:
        self.resets.append(failures)

    def _end(self, fault: BaseException | None) -> None:
        self.ended_with.append(fault)
        self.ended.set()


@contextmanager
def _running(harness: _Harness) -> Iterator[_Harness]:
    harness.loop.start()
    try:
        yield harness
    finally:
        harness.loop.post("stop")
        assert harness.loop.join(PATIENCE)


def test_a_stop_comes_before_everything_else() -> None:
    """What was posted with it or is due by then is not looked at: neither a step nor an action follows it."""
    began, go_on = threading.Event(), threading.Event()
    steps: list[Sequence[Any]] = []

    def decide(events: Sequence[Any]) -> list[Any]:
        steps.append(events)
        return [Work()]

    def perform(_action: Any) -> None:
        began.set()
        go_on.wait(PATIENCE)

    harness = _Harness(decide, perform)
    harness.loop.start()
    assert began.wait(PATIENCE)
    harness.loop.post("more")
    harness.loop.stop()
    go_on.set()
    assert harness.loop.join(PATIENCE)
    assert (steps, harness.ended_with) == ([()], [None])


def _retrying(events: Sequence[Any], *after: Any) -> list[Any]:
    """Try again at once after a failure, end on a stop."""
    if "stop" in events:
        return [End()]
    return [*after, Work()] if "go" in events or _failures(events) else [WaitUntil(None)]


def _failures(events: Sequence[Any]) -> list[Failed]:
    return [event for event in events if isinstance(event, Failed)]


def _failing(times: int, done: threading.Event) -> Callable[[Any], Any]:
    left = [times]

    def perform(action: Any) -> None:
        if isinstance(action, Report):
            return
        if left[0]:
            left[0] -= 1
            raise ConnectionError("away")
        done.set()

    return perform


def test_a_failing_action_is_reported_once_and_once_when_it_is_over() -> None:
    """An outage of any length is two lines in the log, with the number of failures in the second."""
    done = threading.Event()
    with _running(_Harness(_retrying, _failing(20, done))) as harness:
        harness.loop.post("go")
        assert done.wait(PATIENCE)
        (recovered,) = harness.recorder.wait_for(LoopRecovered)
    (failed,) = harness.recorder.of(LoopFailed)
    assert (failed.loop, failed.failures, "ConnectionError: away" in failed.error) == ("test", 1, True)
    assert (recovered.loop, recovered.failures) == ("test", 20)
    assert harness.resets == [*range(1, 21)]


def test_other_actions_that_work_are_no_recovery() -> None:
    """A loop that can still talk to its neighbours has not found its database again."""
    done = threading.Event()
    harness = _Harness(lambda events: _retrying(events, Report()), _failing(5, done))
    with _running(harness):
        harness.loop.post("go")
        assert done.wait(PATIENCE)
        harness.recorder.wait_for(LoopRecovered)
    assert len(harness.recorder.of(LoopFailed)) == 1
    assert [recovered.failures for recovered in harness.recorder.of(LoopRecovered)] == [5]


def test_a_loop_has_recovered_when_all_that_failed_works() -> None:
    """Two duties of one loop fail together and come back one after the other: one report, one recovery."""
    fails = {"a", "b"}
    performed: list[str] = []

    def decide(events: Sequence[Any]) -> list[Any]:
        names = [event.name for event in events if isinstance(event, Work)]
        return [End()] if "stop" in events else [*map(Work, names), WaitUntil(None)]

    def perform(action: Any) -> None:
        performed.append(action.name)
        if action.name in fails:
            raise ConnectionError

    with _running(_Harness(decide, perform)) as harness:
        recorder = harness.recorder

        def post(name: str, count: int) -> None:
            harness.loop.post(Work(name))
            wait_until(lambda: len(performed) >= count)

        post("a", 1)
        post("b", 2)
        fails.clear()
        post("a", 3)
        assert recorder.of(LoopRecovered) == []
        post("b", 4)
        (recovered,) = recorder.wait_for(LoopRecovered)
    assert len(recorder.of(LoopFailed)) == 1
    assert recovered.failures == 2


def test_an_action_may_recover_the_whole_loop() -> None:
    """A connection ends the outage, though what failed in it is not due again for long."""

    @dataclass(frozen=True)
    class Connect:
        recovers = True

    done = threading.Event()
    fail = _failing(1, done)

    def decide(events: Sequence[Any]) -> list[Any]:
        if "stop" in events:
            return [End()]
        return [Connect()] if _failures(events) else [Work()] if "go" in events else [WaitUntil(None)]

    with _running(_Harness(decide, lambda action: fail(action) if action == Work() else None)) as harness:
        harness.loop.post("go")
        (recovered,) = harness.recorder.wait_for(LoopRecovered)
        harness.loop.post("go")
        assert done.wait(PATIENCE)
    assert recovered.failures == 1
    assert len(harness.recorder.of(LoopRecovered)) == 1


def test_pauses_grow_with_the_failures_of_the_same_thing() -> None:
    """What the step is told to wait doubles up to a bound, jittered by half at most."""
    waits: list[float] = []

    def decide(events: Sequence[Any]) -> list[Any]:
        waits.extend(failed.retry_in for failed in _failures(events))
        return [End()] if len(waits) == 12 else [Report(), Work()]

    harness = _Harness(decide, _failing(100, threading.Event()))
    with _running(harness):
        assert harness.ended.wait(PATIENCE)
    for number, wait in enumerate(waits):
        longest = min(FIRST_BACKOFF * 2**number, LONGEST_BACKOFF)
        assert longest / 2 <= wait <= longest


@pytest.mark.parametrize("failures", [1, 2, 50, 10_000, 10**9])
@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_backoff_stays_within_its_bounds(failures: int, jitter: float) -> None:
    """After however many failures: never below half the first pause, never above the longest."""
    assert FIRST_BACKOFF / 2 <= backoff(failures, jitter) <= LONGEST_BACKOFF


class _BareError(BaseException):
    pass


@pytest.mark.parametrize("fault", [ValueError("bug"), SystemExit(3), _BareError()])
def test_a_fault_in_the_step_ends_the_loop_and_is_told(fault: BaseException) -> None:
    """A decision that can't be made is no outage: the runner must learn of it, once."""

    def decide(events: Sequence[Any]) -> list[Any]:
        if events:
            raise fault
        return [WaitUntil(None)]

    with _running(_Harness(decide, print)) as harness:
        harness.loop.post("anything")
        assert harness.ended.wait(PATIENCE)
    assert harness.ended_with == [fault]


def test_an_action_that_raises_no_exception_but_worse_ends_the_loop() -> None:
    """SystemExit out of an action is no failure to try again after."""

    def perform(_action: Any) -> None:
        raise SystemExit(3)

    with _running(_Harness(_retrying, perform)) as harness:
        harness.loop.post("go")
        assert harness.ended.wait(PATIENCE)
    assert [type(fault) for fault in harness.ended_with] == [SystemExit]


def test_an_end_is_told_without_a_fault() -> None:
    """A loop that has nothing left to do is through, and its connection can be closed."""
    with _running(_Harness(_retrying, print)) as harness:
        pass
    assert harness.ended_with == [None]


def test_what_gathers_meanwhile_is_handled_in_one_step() -> None:
    """Events that arrive while an action runs come together, after its answer and in their order."""
    begun, go_on = threading.Event(), threading.Event()
    steps: list[list[Any]] = []

    def decide(events: Sequence[Any]) -> list[Any]:
        steps.append(list(events))
        if "stop" in events:
            return [End()]
        return [Work()] if "go" in events else [WaitUntil(None)]

    def perform(_action: Any) -> str:
        begun.set()
        assert go_on.wait(PATIENCE)
        return "answer"

    with _running(_Harness(decide, perform)) as harness:
        harness.loop.post("go")
        assert begun.wait(PATIENCE)
        for number in range(100):
            harness.loop.post(number)
        go_on.set()
    assert ["answer", *range(100)] in [events[:101] for events in steps]


def test_a_loop_that_always_has_something_to_do_hears_a_stop() -> None:
    """Answers don't keep it from its inbox."""
    working = threading.Event()

    def perform(_action: Any) -> str:
        working.set()
        return "answer"

    def decide(events: Sequence[Any]) -> list[Any]:
        return [End()] if "stop" in events else [Work()]

    with _running(_Harness(decide, perform)):
        assert working.wait(PATIENCE)


def test_a_time_wakes_it_without_events() -> None:
    """Waiting until a time calls the step at that time with nothing."""
    woken = threading.Event()
    asked: list[float] = []

    def decide(events: Sequence[Any]) -> list[Any]:
        if "stop" in events:
            return [End()]
        if asked and not events and time.monotonic() >= asked[0]:
            woken.set()
            return [WaitUntil(None)]
        asked.append(time.monotonic() + 0.05)
        return [WaitUntil(asked[0])]

    with _running(_Harness(decide, print)):
        assert woken.wait(PATIENCE)
