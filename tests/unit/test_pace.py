"""Lanes: how much a queue wants, what it learns from its handlers, and when it looks again."""

from __future__ import annotations

import pytest

from sa_jobqueue.runner.pace import (
    CLAIM_AHEAD_LIMIT,
    CLAIM_AHEAD_PATIENCE,
    CLAIM_AHEAD_SIZE,
    SECOND_LOOK,
    Lane,
)


def _fast(lane: Lane, *, per_tick: int, ticks: int = 100) -> tuple[Lane, float]:
    """A lane whose handlers finish so many jobs every 10 ms, each replaced by another; and the time then."""
    now = 1000.0
    for _ in range(ticks):
        now += 0.01
        lane = lane.finished(per_tick, now).looked(asked=per_tick, got=per_tick, now=now, poll=1.0)
    return lane, now


def test_a_lane_that_knows_nothing_wants_its_free_slots() -> None:
    """Without a pace nothing is claimed ahead: a long job must not wait behind another."""
    assert Lane(4).wanted(0.0) == 4
    assert Lane(4, held=3).wanted(0.0) == 1
    assert Lane(4, held=4).wanted(0.0) == 0


@pytest.mark.parametrize(("per_tick", "ahead"), [(1, 10), (10, 100), (50, 500), (1000, CLAIM_AHEAD_LIMIT)])
def test_short_jobs_are_claimed_ahead_as_far_as_a_blink(per_tick: int, ahead: int) -> None:
    """A lane holds what its handlers start within a tenth of a second, and never more than the bound."""
    lane, now = _fast(Lane(4, held=4), per_tick=per_tick)
    assert lane.wanted(now) == pytest.approx(ahead, rel=0.2)
    assert lane.wanted(now) <= CLAIM_AHEAD_LIMIT


def test_short_jobs_are_known_after_a_few() -> None:
    """A full queue is claimed in large batches from the fourth claim on, not after a time in which it could be empty."""
    lane, now, claims = Lane(10), 1000.0, []
    while len(claims) < 5:
        claims.append(lane.wanted(now))
        now += 0.002  # the claim's own time tells nothing
        lane = lane.looked(asked=claims[-1], got=claims[-1], now=now, poll=1.0)
        now += 0.0001 * claims[-1]
        lane = lane.finished(claims[-1], now)
    assert claims[0] == claims[1] == 10
    assert claims[2] == pytest.approx(10 + 40, abs=2)
    assert claims[3] > 200
    assert claims[4] > 900


def test_one_short_job_among_long_ones_proves_nothing() -> None:
    """Until as many have ended as there are slots nothing is claimed ahead, and then as much as the pace says."""
    lane, now = Lane(10).looked(asked=10, got=10, now=1000.0, poll=1.0), 1000.0
    for _ in range(10):
        now += 0.001
        lane = lane.finished(1, now)
        assert lane.wanted(now) == 1
        lane = lane.looked(asked=1, got=1, now=now, poll=1.0)
    for _ in range(100):  # nine slots are taken, the tenth goes on with 20 jobs a second
        now += 0.05
        lane = lane.finished(1, now)
        assert lane.wanted(now) <= 1 + 2
        lane = lane.looked(asked=1, got=1, now=now, poll=1.0)


def test_time_without_work_teaches_nothing() -> None:
    """A queue that was empty for a moment goes on at its pace; after some seconds the lane begins anew."""
    lane, now = _fast(Lane(4, held=4), per_tick=50)
    empty = lane.finished(lane.held, now)
    for pause, ahead in ((0.2, 500), (10.0, 0)):
        again = empty.looked(asked=100, got=0, now=now + pause, poll=1.0)
        assert again.wanted(now + pause) == pytest.approx(4 + ahead, rel=0.2)


def test_the_pace_is_forgotten() -> None:
    """What was short a few seconds ago says nothing about now."""
    lane, now = _fast(Lane(4, held=4), per_tick=10)
    assert lane.wanted(now + 0.5) < lane.wanted(now) / 2
    assert lane.wanted(now + 5) == 0


def test_batches_stay_large_while_enough_is_waiting() -> None:
    """One freed place is not worth a statement as long as handlers have work in line."""
    lane, now = _fast(Lane(4, held=4), per_tick=10)
    full = lane.looked(asked=96, got=lane.wanted(now), now=now, poll=1.0)
    almost = full.unstarted(1)
    assert almost.wanted(now) == 0
    assert almost.unstarted(full.held // 2 + 1).wanted(now) > full.held // 2


def test_what_never_began_frees_a_slot_and_teaches_nothing() -> None:
    """A thousand jobs given back at once are no thousand handlers: or they would be claimed ahead again."""
    lane = Lane(2, held=1002, paced_at=10.0)
    assert lane.unstarted(1000) == Lane(2, held=2, paced_at=10.0)
    assert lane.finished(1000, 10.1).wanted(10.1) > 500


def test_many_finishes_at_the_same_moment_stay_finite() -> None:
    """A clock that stands still between two events divides nothing by zero."""
    lane = Lane(1000, held=1000).finished(500, 7.0).finished(500, 7.0)
    assert lane.held == 0
    assert lane.wanted(7.0) <= 1000 + CLAIM_AHEAD_LIMIT


@pytest.mark.parametrize(
    ("got", "second_look", "wait", "then"),
    [
        (10, True, None, True),  # full: go on at once
        (3, True, SECOND_LOOK, False),  # dried up: once more soon
        (3, False, 1.0, True),  # and then in peace
        (0, True, 1.0, True),  # nothing: the poll interval
        (0, False, 1.0, True),
    ],
)
def test_looks_follow_what_was_found(got: int, second_look: bool, wait: float | None, then: bool) -> None:
    """Full claims go on at once, the first short one looks again soon, empty ones wait for the poll interval."""
    lane = Lane(10, second_look=second_look).looked(asked=10, got=got, now=50.0, poll=1.0)
    assert lane.not_before == (0.0 if wait is None else 50.0 + wait)
    assert (lane.held, lane.second_look) == (got, then)


def test_a_lane_stalls_only_with_jobs_in_line() -> None:
    """Handlers that take long are no stall; jobs in line behind them are, once patience is over."""
    assert Lane(2, held=2, paced_at=5.0).stalls_at is None
    waiting = Lane(2, held=3, paced_at=5.0, recent=50.0, span=0.5)
    assert waiting.stalls_at == 5.0 + CLAIM_AHEAD_PATIENCE
    assert waiting.stalled(6.0) == Lane(2, held=3, paced_at=6.0)


def _known(*, size: int) -> tuple[Lane, float]:
    """A lane of four slots that has learnt that its jobs are short, and how large a payload is; and the time then."""
    lane, now = _fast(Lane(4, held=4), per_tick=1000)
    return lane.finished(4, now).looked(asked=4, got=4, now=now, poll=1.0, size=4 * size), now


@pytest.mark.parametrize(
    ("size", "ahead"),
    [
        (100, CLAIM_AHEAD_LIMIT),
        (CLAIM_AHEAD_SIZE // CLAIM_AHEAD_LIMIT, CLAIM_AHEAD_LIMIT),
        (CLAIM_AHEAD_SIZE // 4, 4),
        (CLAIM_AHEAD_SIZE + 1, 0),
    ],
)
def test_large_payloads_are_claimed_ahead_by_their_size(size: int, ahead: int) -> None:
    """However short the jobs are, what waits here beyond the slots has a bound in characters too."""
    lane, now = _known(size=size)
    assert lane.wanted(now) == ahead


def test_one_claim_of_small_payloads_is_no_proof() -> None:
    """A lane that has seen large ones gets to large batches by doubling."""
    (lane, now), wanted = _known(size=CLAIM_AHEAD_SIZE // 4), []
    for _ in range(4):
        got = lane.wanted(now)
        wanted.append(got)
        lane = lane.looked(asked=got, got=got, now=now, poll=1.0, size=got).finished(got, now)
    assert wanted == [4, 8, 16, 32]


def test_a_claim_that_finds_nothing_tells_no_size() -> None:
    """What was learnt of payloads is about jobs, not about looks."""
    lane, now = _known(size=CLAIM_AHEAD_SIZE // 4)
    assert lane.looked(asked=4, got=0, now=now, poll=1.0).size == lane.size
