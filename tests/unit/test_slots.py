"""Slots: what the dispatcher hears of handlers that have ended, and when."""

from __future__ import annotations

import pytest

from sa_jobqueue.runner import slots
from sa_jobqueue.runner.dispatch import Freed
from sa_jobqueue.runner.pace import CLAIM_AHEAD_LIMIT, Lane
from sa_jobqueue.runner.slots import Slots
from tests.support.executions import finished


class _Line:
    """As much of an executor as slots look at."""

    def __init__(self, **lengths: int) -> None:
        self.lengths = lengths

    def waiting(self, queue: str) -> int:
        return self.lengths[queue]


def _slots(limit: int, line: _Line) -> tuple[Slots, list[Freed]]:
    told: list[Freed] = []
    return Slots(dict.fromkeys(line.lengths, limit), executor=line, tell=told.append), told  # type: ignore[arg-type]


def test_a_free_slot_is_told_at_once() -> None:
    """With nothing in line, or no more than slots may be looking for, the dispatcher hears of each end."""
    line = _Line(a=0, b=3)
    watched, told = _slots(2, line)
    watched.ended(finished(queue="a"))
    watched.ended(finished(queue="a", seconds=None))
    watched.ended(finished(queue="b"))
    assert told == [Freed({"a": 1}), Freed({}, {"a": 1}), Freed({"b": 1})]


def test_behind_a_long_line_the_half_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher turns when it can claim the next large batch: one turn for hundreds of handlers."""
    monkeypatch.setattr(slots, "LONGEST_SILENCE", float("inf"))
    limit = 10
    line = _Line(a=CLAIM_AHEAD_LIMIT)
    watched, told = _slots(limit, line)
    while not told:
        line.lengths["a"] -= 1  # a slot that was free takes the next
        watched.ended(finished(queue="a"))
    (freed,) = told
    assert 0.4 * CLAIM_AHEAD_LIMIT < freed.finished["a"] < 0.6 * CLAIM_AHEAD_LIMIT
    held = CLAIM_AHEAD_LIMIT + limit - freed.finished["a"]
    fast = Lane(limit, held=held, recent=1e6, span=0.5, paced_at=1.0)
    assert fast.wanted(1.0) == freed.finished["a"]


@pytest.mark.parametrize("limit", [1, 4, 10])
def test_no_slot_is_idle_unheard_of(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many slots look at the line at the same moment: all of whose ends nobody has heard find a job in it."""
    monkeypatch.setattr(slots, "LONGEST_SILENCE", float("inf"))
    for length in range(5 * limit):
        line = _Line(a=length)
        watched, told = _slots(limit, line)
        for ended in range(1, limit + 1):  # all of them, before the first takes its next job
            watched.ended(finished(queue="a"))
            unheard = ended - sum(freed.finished["a"] for freed in told)
            assert not unheard or length >= limit


def test_a_long_line_is_not_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hears nothing for a second takes a line for stalled and gives it back."""
    monkeypatch.setattr(slots, "LONGEST_SILENCE", 0.0)
    watched, told = _slots(1, _Line(a=1000))
    for _ in range(3):
        watched.ended(finished(queue="a"))
    assert told == [Freed({"a": 1})] * 3
