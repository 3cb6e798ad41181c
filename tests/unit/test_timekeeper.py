"""Who is under time, and what is done to a handler that takes too long."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.context import context_of
from sa_jobqueue.events import Event, HandlerTimedOut, PolicyFault, Subscribers
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.runner.roles.timekeeper import Timekeeper
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.runner.timeouts import Began, GiveUp, TimedOut, TimeOut
from sa_jobqueue.runner.watch import Watch
from sa_jobqueue.states import Verb
from tests.support.executions import claimed_job, handler

MINUTE = timedelta(minutes=1)


def _execution(**settings: Any) -> Execution:
    job = claimed_job(attempts=2)
    return Execution(job, handler(**settings), context_of(job, runner_id="me"))


class _Bench:
    """A timekeeper whose world is written down."""

    def __init__(self, default: timedelta | None = None) -> None:
        self.sooner: list[Began] = []
        self.events: list[Event] = []
        self.outcomes: list[Finished] = []
        self.interrupted: list[tuple[Execution, Interruption]] = []
        self.book = Book()
        self.watch = Watch(default, on_sooner=self.sooner.append)
        self.keeper = Timekeeper(
            self.watch,
            book=self.book,
            executor=self,  # type: ignore[arg-type]
            patience=timedelta(seconds=80),
            to_settler=self.outcomes.append,
            subscribers=Subscribers([self.events.append]),
        )

    def interrupt(self, execution: Execution, cause: Interruption) -> None:
        self.interrupted.append((execution, cause))

    def begin(self, **settings: Any) -> Execution:
        one = _execution(**settings)
        self.book.hold([one])
        self.watch.begin(one)
        return one


def _much_later() -> float:
    return time.monotonic() + 10**6


@pytest.mark.parametrize(
    ("own", "default", "limit"),
    [
        (None, None, None),
        (None, MINUTE, MINUTE),
        (2 * MINUTE, MINUTE, 2 * MINUTE),
        (2 * MINUTE, None, 2 * MINUTE),
        ("never", MINUTE, None),
        ("never", None, None),
    ],
)
def test_the_handlers_own_timeout_wins(own: Any, default: timedelta | None, limit: timedelta | None) -> None:
    """Without one the runner's holds, and "never" is an answer of the handler's own."""
    bench = _Bench(default)
    one = bench.begin(timeout=own)
    assert one.timeout == limit
    past, following = bench.watch.take(_much_later())
    assert [timed.execution for timed in past] == ([] if limit is None else [one])
    assert following is None


def test_only_a_nearer_timeout_wakes_anybody() -> None:
    """Of many jobs with the same timeout the first alone does."""
    bench = _Bench()
    for minutes in (5, 5, 6, 1, 2):
        bench.begin(timeout=minutes * MINUTE)
    assert len(bench.sooner) == 2
    assert bench.sooner[1].due < bench.sooner[0].due


def test_after_a_look_the_next_nearest_is_awaited() -> None:
    """What ended meanwhile is forgotten, and who begins with a nearer timeout wakes again."""
    bench = _Bench()
    ended, runs = bench.begin(timeout=MINUTE), bench.begin(timeout=5 * MINUTE)
    bench.watch.end(ended)
    now = time.monotonic() + 61
    past, following = bench.watch.take(now)
    assert past == []
    assert following is not None
    assert following > now
    bench.begin(timeout=10 * MINUTE)
    assert len(bench.sooner) == 1
    bench.begin(timeout=MINUTE)
    assert len(bench.sooner) == 2
    bench.watch.end(runs)


def test_nothing_is_kept_of_what_has_ended() -> None:
    """A payload must not live for as long as its timeout would have lasted."""
    bench = _Bench(MINUTE)
    for _ in range(10):
        bench.watch.end(bench.begin())
    assert bench.watch._running == {}


def test_past_its_timeout_a_handler_is_asked_to_end_and_its_lease_runs_out() -> None:
    """An event tells which, once; what has ended in that very moment is left alone."""
    bench = _Bench()
    hung, ended = bench.begin(timeout=MINUTE), bench.begin(timeout=MINUTE)
    bench.book.decide(ended)
    answer = bench.keeper.perform(TimeOut(_much_later()))
    assert answer == TimedOut((hung.key,), None)
    assert bench.interrupted == [(hung, Interruption.TIMEOUT)]
    job = hung.job
    assert bench.events == [
        HandlerTimedOut(
            job_id=job.id,
            kind=job.kind,
            queue=job.queue,
            attempt=2,
            timeout=MINUTE,
            given_up_in=timedelta(seconds=80),
            cancelled=False,
        )
    ]
    assert bench.book.snapshot() == [ended.key]
    assert not hung.context.lost, "what it says still counts"
    assert bench.keeper.perform(TimeOut(_much_later())) == TimedOut((), None)


def test_who_goes_on_is_settled_by_its_own_policy() -> None:
    """As a failure of its own; its slot isn't free, and its own outcome comes too late."""
    bench = _Bench()
    hung = bench.begin(timeout=timedelta(seconds=30), retry=lambda attempt, _error: attempt * MINUTE)
    bench.keeper.perform(GiveUp((hung.key,)))
    (finished,) = bench.outcomes
    assert finished.still_runs
    settlement = finished.settlement
    assert (settlement.verb, settlement.delay) == (Verb.RETRY, 2 * MINUTE)
    assert settlement.error == "TimeoutError: timed out after 30s"
    assert hung.context.lost
    assert not bench.book.decide(hung)


def test_a_permanent_timeout_is_the_end() -> None:
    """`permanent=[TimeoutError]` means this error too."""
    bench = _Bench()
    hung = bench.begin(timeout=MINUTE, permanent=[TimeoutError])
    bench.keeper.perform(GiveUp((hung.key,)))
    assert [one.settlement.verb for one in bench.outcomes] == [Verb.DISCARD]


def test_a_policy_that_fails_is_told() -> None:
    """It must not end the loop of everybody's timeouts."""

    def broken(attempt: int, error: BaseException) -> timedelta:
        raise KeyboardInterrupt

    bench = _Bench()
    hung = bench.begin(timeout=MINUTE, retry=broken)
    bench.keeper.perform(GiveUp((hung.key,)))
    assert [type(event) for event in bench.events] == [PolicyFault]
    assert [one.settlement.verb for one in bench.outcomes] == [Verb.RETRY]


def test_who_has_ended_meanwhile_is_not_given_up() -> None:
    """Its own outcome is the one that is written."""
    bench = _Bench()
    late = bench.begin(timeout=MINUTE)
    bench.keeper.perform(TimeOut(_much_later()))
    assert bench.book.decide(late)
    bench.keeper.perform(GiveUp((late.key,)))
    assert bench.outcomes == []
    assert not late.context.lost


def _completing(bench: _Bench, fate: Fate, **settings: Any) -> Execution:
    """One whose handler is past the fence of its completion."""
    one = bench.begin(**settings)
    completion = Completion(one.key)
    assert bench.book.begin_completion(completion) is one
    assert bench.book.pass_fence(one.key)
    completion.fate = fate
    return one


def test_a_handler_that_has_completed_its_job_is_told_and_not_given_up() -> None:
    """The job is done: there is nothing to write, and nobody to run it again."""
    bench = _Bench(MINUTE)
    one = _completing(bench, Fate.LANDED)
    bench.keeper.perform(TimeOut(_much_later()))
    assert [(type(event), event.completed) for event in bench.events] == [(HandlerTimedOut, True)]  # type: ignore[union-attr]
    assert bench.interrupted == [(one, Interruption.TIMEOUT)]
    bench.keeper.perform(GiveUp((one.key,)))
    assert not bench.outcomes


def test_a_handler_that_is_given_up_past_its_fence_may_have_completed_its_job() -> None:
    """What is sent in its place is reconciled with that."""
    bench = _Bench(MINUTE)
    one = _completing(bench, Fate.OPEN)
    bench.keeper.perform(TimeOut(_much_later()))
    bench.keeper.perform(GiveUp((one.key,)))
    (outcome,) = bench.outcomes
    assert (outcome.settlement.verb, outcome.still_runs, outcome.again) == (Verb.RETRY, True, True)
