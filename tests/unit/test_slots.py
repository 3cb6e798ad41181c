"""Slots: what the dispatcher hears of handlers that have ended, and when."""

from __future__ import annotations

from sa_jobqueue.runner.dispatch_messages import Freed
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
    """With nothing in line the dispatcher hears of each end; of many slots it hears when a share of them is free."""
    watched, told = _slots(2, _Line(a=0, b=1))
    watched.ended(finished(queue="a"))
    watched.ended(finished(queue="a", seconds=None))
    watched.ended(finished(queue="b"))
    assert told == [Freed({"a": 1}), Freed({}, {"a": 1}), Freed({"b": 1})]
    watched, told = _slots(80, _Line(a=0))
    for _ in range(20):
        watched.ended(finished(queue="a"))
    assert told == [Freed({"a": 10})] * 2


def test_behind_a_long_line_the_half_is_told_at_once() -> None:
    """The dispatcher turns when it can claim the next large batch: one turn for hundreds of handlers."""
    limit = 10
    line = _Line(a=CLAIM_AHEAD_LIMIT)
    watched, told = _slots(limit, line)
    while not told:
        watched.ended(finished(queue="a"))
        line.lengths["a"] -= 1  # its slot takes the next
    (freed,) = told
    assert 0.4 * CLAIM_AHEAD_LIMIT < freed.finished["a"] < 0.6 * CLAIM_AHEAD_LIMIT
    held = CLAIM_AHEAD_LIMIT + limit - freed.finished["a"]
    fast = Lane(limit, held=held, recent=1e6, span=0.5, paced_at=1.0)
    assert fast.wanted(1.0) == freed.finished["a"]


def test_what_was_not_worth_a_turn_is_told_with_the_rest() -> None:
    """Every end is told once: by its own thread or before the next write."""
    watched, told = _slots(10, _Line(a=100, b=100))
    watched.ended(finished(queue="a"))
    watched.ended(finished(queue="b"))
    assert told == []
    watched.tell_rest()
    watched.tell_rest()
    assert told == [Freed({"a": 1, "b": 1})]
