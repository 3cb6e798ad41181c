"""The book of held jobs: keyed by id and token, one word about each outcome, who may judge what."""

from __future__ import annotations

import threading
import time
from uuid import UUID

from sa_jobqueue.runner.book import Book
from tests.support.executions import execution
from tests.support.waiting import PATIENCE


def test_the_same_job_under_two_tokens_is_two_entries() -> None:
    """A job that comes back to its first owner under a new claim must not be let go by the old one's end."""
    book = Book()
    first, second = execution(id=7, token=UUID(int=1)), execution(id=7, token=UUID(int=2))
    book.hold([first, second])
    book.drop([first.key])
    assert book.snapshot() == [second.key]


def test_only_one_word_counts_about_an_outcome() -> None:
    """A handler that ends with the grace period and the one who hands its job back can't both settle it."""
    book = Book()
    one = execution()
    book.hold([one])
    assert [book.decide(one.key), book.decide(one.key)] == [True, False]


def test_the_end_decides_what_nobody_has_decided() -> None:
    """Neither what has ended already nor what is gone by then counts as running."""
    book = Book()
    ended, running, gone = (execution() for _ in range(3))
    book.hold([ended, running, gone])
    assert book.decide(ended.key)
    book.drop([gone.key])
    assert book.decide_all() == [running]
    assert not book.decide(running.key)


def test_one_word_counts_also_among_threads() -> None:
    """Of many at the same moment exactly one is told that it has the word."""
    book = Book()
    executions = [execution() for _ in range(200)]
    book.hold(executions)
    told: list[bool] = []
    ready = threading.Barrier(4)

    def decide() -> None:
        ready.wait()
        told.extend([book.decide(one.key) for one in executions])

    threads = [threading.Thread(target=decide) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(told) == len(executions)


def test_an_outcome_of_a_job_that_was_given_up_is_let_through() -> None:
    """The settler reports what becomes of it, and its slot is freed."""
    book = Book()
    one = execution()
    book.hold([one])
    book.drop([one.key])
    assert book.decide(one.key)


def test_after_the_last_word_there_is_none() -> None:
    """A handler that outlives its runner is told so, whether its job is still held or not."""
    book = Book()
    held, gone = execution(), execution()
    book.hold([held])
    book.close()
    assert not book.decide(held.key)
    assert not book.decide(gone.key)


def test_the_keeper_judges_no_job_that_is_being_settled() -> None:
    """A write in flight may have ended the lease itself; only its own answer tells."""
    book = Book()
    one = execution()
    book.hold([one])
    assert book.judge(one.key) is one
    book.settle([one.key])
    assert book.judge(one.key) is None
    assert book.snapshot() == [one.key]
    book.drop([one.key])
    assert book.judge(one.key) is None


def test_nothing_is_left_of_jobs_that_are_gone() -> None:
    """A runner that handles millions keeps no trace of them, in whatever order they were decided and dropped."""
    book = Book()
    for number in range(300):
        one = execution()
        book.hold([one])
        if number % 5:
            book.stop_renewing(one.key)
        if number % 7:
            book.give_up(one.key)
        if number % 3:
            book.decide(one.key)
        if number % 2:
            book.settle([one.key])
        book.drop([one.key])
        book.decide(one.key)
        book.drop([one.key])
    assert len(book) == 0
    assert not book._decided
    assert not book._settling
    assert not book._unrenewed
    assert not book._given_up


def test_what_is_not_renewed_is_renewed_again_once_it_is_decided() -> None:
    """A hung handler costs its lease; an outcome that waits for its write keeps it, as every other does."""
    book = Book()
    hung, other = execution(), execution()
    book.hold([hung, other])
    assert book.stop_renewing(hung.key)
    assert book.snapshot() == [other.key]
    assert book.decide(hung.key)
    assert book.snapshot() == [hung.key, other.key]
    assert not book.stop_renewing(hung.key), "it has ended"
    book.drop([hung.key, other.key])
    assert not book.stop_renewing(other.key), "it is gone"


def test_a_handler_that_was_given_up_has_no_word_any_more() -> None:
    """One outcome under one token: also long after the first was written and let go of."""
    book = Book()
    written, waiting = execution(), execution()
    book.hold([written, waiting])
    assert [book.give_up(one.key) for one in (written, waiting)] == [written, waiting]
    assert book.give_up(waiting.key) is None
    book.drop([written.key])
    assert [book.decide(one.key) for one in (written, waiting)] == [False, False]


def test_what_the_end_has_decided_leaves_its_handler_no_word() -> None:
    """A handler may end after its job was handed back, and before its runner has: that is no second outcome."""
    book = Book()
    handed_back, waiting = execution(), execution()
    book.hold([handed_back, waiting])
    assert book.decide_all() == [handed_back, waiting]
    book.drop([handed_back.key])
    assert [book.decide(one.key) for one in (handed_back, waiting)] == [False, False]


def test_nobody_is_given_up_who_has_ended_or_is_gone() -> None:
    """The handler was first, or the lease is somebody else's, or the runner has spoken its last word."""
    book = Book()
    ended, gone, late = (execution() for _ in range(3))
    book.hold([ended, gone, late])
    assert book.decide(ended.key)
    book.drop([gone.key])
    assert (book.give_up(ended.key), book.give_up(gone.key)) == (None, None)
    book.close()
    assert book.give_up(late.key) is None


def test_the_wait_for_an_empty_book_ends_with_the_last_drop_or_in_time() -> None:
    """A stop goes on as soon as the last outcome is written, and at its deadline otherwise."""
    book = Book()
    one = execution()
    book.hold([one])
    assert not book.wait_until_empty(time.monotonic())
    waiting = threading.Event()
    empty: list[bool] = []

    def wait() -> None:
        waiting.set()
        empty.append(book.wait_until_empty(time.monotonic() + 30))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(PATIENCE)
    book.drop([one.key])
    thread.join(PATIENCE)
    assert empty == [True]


def test_outcomes_can_be_waited_for() -> None:
    """Decided or given up, each counts; without either the wait ends at its deadline."""
    book, one, other = Book(), execution(), execution()
    book.hold([one, other])
    assert book.undecided() == [one, other]
    keys = [one.key, other.key]
    assert not book.wait_until_decided(keys, time.monotonic())
    assert book.decide(one.key)
    assert book.undecided() == [other]
    waiter = threading.Thread(target=lambda: book.wait_until_decided(keys, time.monotonic() + 60))
    waiter.start()
    book.drop([other.key])
    waiter.join(PATIENCE)
    assert not waiter.is_alive()
