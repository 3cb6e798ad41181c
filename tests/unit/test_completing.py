"""The owner of the leases, as a completion meets it: one completion a run, renewals, and who judges past the fence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.completing import Completing
from sa_jobqueue.runner.executors.protocol import Execution
from tests.support.executions import execution
from tests.support.waiting import PATIENCE, wait_until

LEASE, INTERVAL = timedelta(seconds=90), timedelta(seconds=30)


class _Owner:
    """An owner with a book, jobs that were claimed just now, and a count of the renewals that were asked for."""

    def __init__(self, *, lease: timedelta = LEASE) -> None:
        self.book = Book()
        self.asked = threading.Semaphore(0)
        self.owner = Completing(
            self.book, lease=lease, renewal_interval=INTERVAL, ask=lambda: self.asked.release()
        )

    def held(self, *, age: float = 0.0) -> Execution:
        one = execution()
        one.renewed_at = time.monotonic() - age
        self.book.hold([one])
        return one

    def begun(self, *, age: float = 0.0) -> tuple[Execution, Completion]:
        one = self.held(age=age)
        completion = Completion(one.key)
        self.owner.begin(completion)
        return one, completion

    def in_thread(self, act: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
        raised: list[BaseException] = []

        def guarded() -> None:
            try:
                act()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread, raised


def test_a_lease_that_was_renewed_lately_needs_no_renewal() -> None:
    """The claim counts as well: a completion of a short job costs no statement of the runner's."""
    it = _Owner()
    one, completion = it.begun(age=29.0)
    assert one.completion is completion
    assert not it.asked.acquire(blocking=False)


def test_a_lease_that_was_renewed_long_ago_is_renewed_first() -> None:
    """The completion waits for a renewal that was sent after it began, not for one that was under way."""
    it = _Owner()
    one = it.held(age=31.0)
    before = time.monotonic()
    thread, raised = it.in_thread(lambda: it.owner.begin(Completion(one.key)))
    assert it.asked.acquire(timeout=PATIENCE)
    it.book.note_renewal([one.key], before)
    thread.join(0.05)
    assert thread.is_alive(), "that one was sent before"
    it.book.note_renewal([one.key], time.monotonic())
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not raised


def test_a_renewal_that_finds_the_lease_lost_ends_the_completion() -> None:
    """Before anything of it was written."""
    it = _Owner()
    one = it.held(age=31.0)
    completion = Completion(one.key)
    thread, raised = it.in_thread(lambda: it.owner.begin(completion))
    assert it.asked.acquire(timeout=PATIENCE)
    it.book.drop([one.key])
    it.book.note_renewal([], time.monotonic())
    thread.join(PATIENCE)
    assert [type(error) for error in raised] == [LeaseLostError]
    assert str(one.key[0]) in str(raised[0])
    assert (completion.fate, completion.error) == (Fate.LOST, raised[0])


def test_a_lease_that_can_not_be_renewed_ends_the_completion() -> None:
    """The wait has an end: after a lease without a renewal the job may be anybody's."""
    it = _Owner(lease=timedelta(milliseconds=10))
    one = it.held(age=31.0)
    with pytest.raises(LeaseLostError, match="could not be renewed"):
        it.owner.begin(Completion(one.key))


@pytest.mark.parametrize("end", ["given up", "dropped", "closed", "decided"])
def test_a_job_that_is_not_this_handlers_any_more_has_no_completion(end: str) -> None:
    """Neither begun, nor fenced when it was begun before."""
    it = _Owner()
    former, begun = it.begun()
    one = it.held()
    for held in (former, one):
        match end:
            case "given up":
                assert it.book.give_up(held.key)
            case "dropped":
                it.book.drop([held.key])
            case "decided":
                assert it.book.decide(held)
    if end == "closed":
        it.book.close()
    with pytest.raises(LeaseLostError):
        it.owner.begin(Completion(one.key))
    with pytest.raises(LeaseLostError):
        it.owner.fencing(begun)
    assert begun.fate is Fate.LOST
    assert one.completion is None


@pytest.mark.parametrize("fate", [Fate.OPEN, Fate.DOUBTFUL, Fate.LANDED])
def test_a_run_has_one_completion(fate: Fate) -> None:
    """Two that may land are none that can be told apart."""
    it = _Owner()
    one, completion = it.begun()
    it.owner.fencing(completion)
    completion.fate = fate
    it.owner.decided(completion)
    with pytest.raises(RuntimeError, match=f"job {one.key[0]}: this run has a completion already"):
        it.owner.begin(Completion(one.key))
    assert one.completion is completion


def test_what_was_undone_may_be_tried_again() -> None:
    """A transaction that the server gave up as not serializable is run again by its handler; a lost job is not."""
    it = _Owner()
    one, first = it.begun()
    it.owner.fencing(first)
    first.fate = Fate.UNDONE
    it.owner.decided(first)
    second = Completion(one.key)
    it.owner.begin(second)
    assert one.completion is second
    second.fate = Fate.LOST
    it.owner.decided(second)
    with pytest.raises(LeaseLostError):
        it.owner.begin(Completion(one.key))


def test_a_handler_past_its_timeout_completes_with_what_is_left_of_its_lease() -> None:
    """It is renewed no more, so that nobody waits for a renewal that doesn't come."""
    it = _Owner()
    one = it.held(age=31.0)
    assert it.book.stop_renewing(one.key)
    completion = Completion(one.key)
    it.owner.begin(completion)
    it.owner.fencing(completion)
    assert not it.asked.acquire(blocking=False)


def test_renewals_that_are_held_are_over_when_it_returns() -> None:
    """One under way may still change the row, and a transaction with a snapshot would fail for it."""
    it = _Owner()
    one, completion = it.begun()
    other = it.held()
    assert it.book.begin_renewal() == [one.key, other.key]
    thread, _ = it.in_thread(lambda: it.owner.hold_renewals(completion))
    wait_until(lambda: it.book.snapshot() == [other.key])
    thread.join(0.05)
    assert thread.is_alive()
    it.book.end_renewal()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert it.book.begin_renewal() == [other.key]
    it.owner.resume_renewals(completion)
    assert it.asked.acquire(blocking=False), "it may have missed its turn"
    assert it.book.snapshot() == [one.key, other.key]


def test_nobody_judges_past_the_fence() -> None:
    """The keeper takes no lease for lost that the completion itself has ended."""
    it = _Owner()
    one, completion = it.begun()
    assert it.book.judge(one.key) is one
    it.owner.fencing(completion)
    assert it.book.judge(one.key) is None
    assert it.book.snapshot() == [one.key], "it may not land"


@pytest.mark.parametrize("fate", [Fate.UNDONE, Fate.LOST])
def test_what_has_not_landed_is_judged_again(fate: Fate) -> None:
    """Its handler may run on for long."""
    it = _Owner()
    one, completion = it.begun()
    it.owner.fencing(completion)
    completion.fate = fate
    it.owner.decided(completion)
    assert it.book.judge(one.key) is one
    assert not one.doubtful
    assert it.book.give_up(one.key) is one


def test_what_has_landed_is_renewed_and_given_up_no_more() -> None:
    """The job is done, and its handler only has to end."""
    it = _Owner()
    one, completion = it.begun()
    it.owner.fencing(completion)
    completion.fate = Fate.LANDED
    it.owner.decided(completion)
    assert one.completed
    assert it.book.snapshot() == []
    assert it.book.judge(one.key) is None
    assert it.book.give_up(one.key) is None
    it.owner.resume_renewals(completion)
    assert not it.asked.acquire(blocking=False), "whatever its block does at its end"
    assert it.book.stop_renewing(one.key), "past its timeout it is told all the same"
    assert len(it.book) == 1, "the end waits for it"
    assert it.book.decide(one)


@pytest.mark.parametrize("fate", [Fate.OPEN, Fate.DOUBTFUL])
def test_what_is_in_doubt_may_be_given_up(fate: Fate) -> None:
    """A fenced write follows it, which tells what has landed: a handler that hangs then is not waited for."""
    it = _Owner()
    one, completion = it.begun()
    it.owner.fencing(completion)
    completion.fate = fate
    assert it.book.give_up(one.key) is one
    assert one.doubtful
    with pytest.raises(LeaseLostError):
        it.owner.fencing(completion)
