"""Who has reported progress that nobody has written yet: told once, and never forgotten."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.context import context_of
from sa_jobqueue.events import Subscribers
from sa_jobqueue.records import Landing, Progress, Renewed
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.executors.protocol import Execution
from sa_jobqueue.runner.leases import ProgressWritten, WriteProgress
from sa_jobqueue.runner.progress import Reports
from sa_jobqueue.runner.roles.keeper import Keeper
from tests.support.executions import claimed_job, handler
from tests.support.waiting import wait_until

KEYS = [(number, UUID(int=number)) for number in range(4)]


def _reports() -> tuple[Reports, list[None]]:
    reports, announced = Reports(), list[None]()
    reports.announce_by(lambda: announced.append(None))
    return reports, announced


def test_only_the_first_report_is_announced() -> None:
    """A handler may report a million times, and two hundred handlers at once: whoever writes is woken once."""
    reports, announced = _reports()
    for _ in range(1000):
        for key in KEYS:
            reports.note(key)
    assert len(announced) == 1
    assert reports.take() == set(KEYS)
    assert reports.take() == set()
    reports.note(KEYS[0])
    assert len(announced) == 2


def test_the_settler_takes_those_of_its_batch() -> None:
    """The others stay for the next write, and are not announced anew."""
    reports, announced = _reports()
    for key in KEYS[:3]:
        reports.note(key)
    assert reports.take_from(KEYS[1:], patience=0) == KEYS[1:3]
    assert reports.take_from(KEYS, patience=0) == KEYS[:1]
    assert reports.take_from(KEYS, patience=0) == []
    assert len(announced) == 1


def test_what_could_not_be_written_is_taken_again() -> None:
    """What is locked is there for the next write; whoever puts it back knows when that is."""
    reports, announced = _reports()
    reports.note(KEYS[0])
    reports.written(but=reports.take())
    assert reports.take() == {KEYS[0]}
    assert len(announced) == 1


def test_the_settler_writes_what_may_come_too_late() -> None:
    """Taken by the keeper and not answered yet: once the job is settled that write would find another token."""
    reports, _ = _reports()
    reports.note(KEYS[0])
    reports.take()
    assert reports.take_from(KEYS, patience=0) == KEYS[:1]
    reports.written()
    assert reports.take_from(KEYS, patience=0) == []


def test_the_settler_waits_for_what_is_being_written() -> None:
    """A report that is on its way is older than the one that follows, and must not land after it."""
    reports, _ = _reports()
    reports.note(KEYS[0])
    reports.take()
    reports.note(KEYS[0])
    order: list[str] = []

    def settle() -> None:
        assert reports.take_from(KEYS, patience=60) == KEYS[:1]
        order.append("taken")

    settler = threading.Thread(target=settle)
    settler.start()
    wait_until(lambda: bool(reports._changed._waiters))  # type: ignore[attr-defined]
    order.append("answered")
    reports.written()
    settler.join()
    assert order == ["answered", "taken"]
    assert reports.take() == set()


def test_no_report_is_missed_while_others_are_taken() -> None:
    """Whatever the moment at which it is noted: a value that was there before the note is seen by a later take."""
    reports, _ = _reports()
    latest, seen = [0], list[int]()
    done = threading.Event()

    def handler() -> None:
        for number in range(1, 20_001):
            latest[0] = number
            reports.note(KEYS[0])
        done.set()

    thread = threading.Thread(target=handler)
    thread.start()
    while not done.is_set():
        if reports.take():
            seen.append(latest[0])
    thread.join()
    if reports.take():
        seen.append(latest[0])
    assert seen[-1] == 20_000


class Writing:
    """The store as far as a write of progress goes: what it was given, and what it answers."""

    def __init__(self) -> None:
        self.given = list[Any]()
        self.answers: Landing | Exception = Landing.LANDED

    def report(self, reports: Any) -> list[Renewed]:
        self.given.append(reports)
        if isinstance(self.answers, Exception):
            raise self.answers
        return [Renewed(*key, self.answers) for key, _ in reports]


class Interrupting:
    """The executor as far as a lost job goes."""

    def __init__(self) -> None:
        self.interrupted = list[Execution]()

    def interrupt(self, execution: Execution, _cause: object) -> bool:
        self.interrupted.append(execution)
        return True


def _kept(book: Book, store: Writing, executor: Any = None) -> Keeper:
    unused: Any = None
    return Keeper(
        store,  # type: ignore[arg-type]
        book=book,
        executor=executor,
        lease=timedelta(minutes=1),
        to_maintenance=unused,
        subscribers=Subscribers([]),
    )


def _running(book: Book) -> Execution:
    job = claimed_job()
    context = context_of(job, runner_id="me", on_progress=partial(book.reports.note, (job.id, job.token)))
    book.hold([execution := Execution(job, handler(), context)])
    return execution


def test_a_write_that_failed_is_made_again_with_the_latest_word() -> None:
    """The connection breaks, a row is locked: nothing is forgotten, and what was said meanwhile counts."""
    book, store = Book(), Writing()
    keeper, one = _kept(book, store), _running(book)
    one.context.progress(0.1)
    store.answers = ConnectionError("gone")
    with pytest.raises(ConnectionError):
        keeper.perform(WriteProgress())
    store.answers = Landing.BUSY
    assert keeper.perform(WriteProgress()) == ProgressWritten(left=True)
    one.context.progress(0.2)
    store.answers = Landing.LANDED
    assert keeper.perform(WriteProgress()) == ProgressWritten(left=False)
    assert keeper.perform(WriteProgress()) == ProgressWritten(left=False)
    assert store.given == [
        [(one.key, Progress(0.1))],
        [(one.key, Progress(0.1))],
        [(one.key, Progress(0.2))],
    ]


def test_only_who_has_reported_and_is_renewed_is_written() -> None:
    """Its silent neighbours are left alone, and so is a job that is renewed no more, for it may be another's."""
    book, store = Book(), Writing()
    keeper = _kept(book, store)
    reporting, silent, hung, ended = (_running(book) for _ in range(4))
    for one in (reporting, hung, ended):
        one.context.progress(0.5)
    assert book.stop_renewing(hung.key)
    book.drop([ended.key])
    keeper.perform(WriteProgress())
    assert store.given == [[(reporting.key, Progress(0.5))]]
    assert silent.context.latest_progress is None


def test_what_is_not_renewed_just_now_keeps_its_last_word() -> None:
    """How far a handler came that is past its timeout, or within a block that bears no renewal, is written in the end."""
    book, store = Book(), Writing()
    keeper = _kept(book, store)
    hung, paused, completed = (_running(book) for _ in range(3))
    for one in (hung, paused, completed):
        one.context.progress(0.5)
    assert book.stop_renewing(hung.key)
    assert book.pause_renewals(paused.key)
    assert book.pause_renewals(completed.key)
    completed.completion = Completion(completed.key)
    completed.completion.fate = Fate.LANDED
    assert keeper.perform(WriteProgress()) == ProgressWritten(left=True)
    assert store.given == []
    assert book.resume_renewals(paused.key)
    assert keeper.perform(WriteProgress()) == ProgressWritten(left=True)
    assert store.given == [[(paused.key, Progress(0.5))]]
    assert book.reports.take_from([hung.key, paused.key, completed.key], patience=0) == [hung.key]
    assert keeper.perform(WriteProgress()) == ProgressWritten(left=False)


def test_a_lost_job_is_told_by_its_report() -> None:
    """A second after it was taken, not at the next renewal: what the handler does from here on is for nothing."""
    book, store = Book(), Writing()
    one = _running(book)
    one.context.progress(0.5)
    executor = Interrupting()
    store.answers = Landing.LOST
    _kept(book, store, executor).perform(WriteProgress())
    assert one.context.lost
    assert len(book) == 0
    assert executor.interrupted == [one]
