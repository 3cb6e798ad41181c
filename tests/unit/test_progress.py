"""Who has reported progress that nobody has written yet: told once, and never forgotten."""

from __future__ import annotations

import threading
from uuid import UUID

from sa_jobqueue.runner.progress import Reports

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
    assert reports.take_from(KEYS[1:]) == KEYS[1:3]
    assert reports.take_from(KEYS) == KEYS[:1]
    assert reports.take_from(KEYS) == []
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
    assert reports.take_from(KEYS) == KEYS[:1]
    reports.written()
    assert reports.take_from(KEYS) == []


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
