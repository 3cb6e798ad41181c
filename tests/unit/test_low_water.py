"""Low-water marks: how far they rise, what lowers them, and when a queue is looked through from its beginning."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from sa_jobqueue.loop import WaitUntil
from sa_jobqueue.records import PRIORITIES, SMALLEST_ID, ClaimAnswer, ClaimedJob, Mark
from sa_jobqueue.runner.dispatch import Dispatch, step
from sa_jobqueue.runner.dispatch_messages import Claim, Claimed, Drained, Freed, GivenBack, Released
from sa_jobqueue.runner.low_water import (
    FULL_LOOK_INTERVAL,
    GRACE,
    JITTER,
    LONGEST_INTERVAL,
    SHARE,
    LowWater,
    sight,
)
from sa_jobqueue.runner.pace import Lane
from tests.support.executions import NOON, claimed_job

SECOND = timedelta(seconds=1)
HOUR_AGO = NOON - timedelta(hours=1)
NEWEST = Mark(NOON - GRACE, SMALLEST_ID)


def _jobs(*places: tuple[int, datetime, int]) -> list[ClaimedJob]:
    return [claimed_job(priority=priority, run_at=run_at, id=job_id) for priority, run_at, job_id in places]


def _looked(
    jobs: list[ClaimedJob],
    *,
    before: LowWater | None = None,
    quota: int | None = None,
    hinted: bool = False,
    through: bool = True,
    seconds: float = 0.0,
    time: datetime | None = NOON,
    jitter: float = 0.0,
) -> LowWater:
    """After a claim that brought these; as many as were wanted, unless another quota is given."""
    before = before or LowWater()
    seen = sight(ClaimAnswer(jobs, through), seconds=seconds, now=None if hinted else time)
    asked, got = {"default": len(jobs) if quota is None else quota}, {"default": len(jobs)}
    behind = dict(before.marks) if hinted else {}
    return before.looked(asked, got, behind, seen, now=100.0, jitter=jitter)


def _marks(low_water: LowWater) -> list[Mark | None]:
    return list(low_water.marks["default"])


def test_a_runner_begins_with_the_first_job() -> None:
    """At its start it knows nothing, nor does a queue that it has not asked yet."""
    assert LowWater().behind(["default"], 0.0) == {}
    assert _looked([], quota=1).behind(["other"], 100.5) == {}


def test_an_emptied_queue_is_marked_a_little_before_now() -> None:
    """In every priority: whoever commits within the grace is found by the next claim, however short its view."""
    assert _marks(_looked([], quota=5)) == [NEWEST] * PRIORITIES
    assert _marks(_looked(_jobs((5, HOUR_AGO, 7)), quota=5)) == [NEWEST] * PRIORITIES


def test_a_backlog_is_marked_at_its_last_job() -> None:
    """By its id too, for thousands have one due time; what is more urgent is empty, of the rest nothing was seen."""
    marks = _marks(_looked(_jobs((2, HOUR_AGO, 9), (5, HOUR_AGO, 7), (5, HOUR_AGO, 8))))
    assert marks == [NEWEST] * 5 + [Mark(HOUR_AGO, 8)] + [None] * 4


def test_no_mark_is_younger_than_the_grace() -> None:
    """Beside the youngest jobs others are about to be committed."""
    for age in (timedelta(0), GRACE / 2, GRACE):
        assert _marks(_looked(_jobs((5, NOON - age, 7))))[5] == NEWEST
    assert _marks(_looked(_jobs((5, NOON - GRACE - SECOND, 7))))[5] == Mark(NOON - GRACE - SECOND, 7)


def test_between_full_looks_the_last_known_time_serves() -> None:
    """It is a little old, and so the marks are a little lower than they could be; due times tell of later ones."""
    before = _looked(_jobs((5, HOUR_AGO, 7)))
    after = _looked(_jobs((5, HOUR_AGO + SECOND, 9)), before=before, hinted=True)
    assert _marks(after)[5] == Mark(HOUR_AGO + SECOND, 9)
    assert _marks(_looked([], before=after, quota=1, hinted=True)) == [NEWEST] * PRIORITIES
    young = _looked(_jobs((5, NOON + SECOND, 11)), before=after, hinted=True)
    assert _marks(young)[5] == Mark(NOON + SECOND - GRACE, SMALLEST_ID)


def test_a_full_look_makes_the_marks_anew() -> None:
    """Found behind the marks: more of it may stand there. And a clock that was an hour ahead is ahead no more."""
    ahead = _looked([], quota=1, time=NOON + timedelta(hours=1))
    assert _marks(_looked([], before=ahead, quota=1)) == [NEWEST] * PRIORITIES
    assert _marks(_looked(_jobs((5, HOUR_AGO, 7)), before=ahead))[5] == Mark(HOUR_AGO, 7)


def test_a_look_that_was_not_through_empties_nothing() -> None:
    """A claim around rows that can't be claimed may have passed over what is behind a hundred of them."""
    assert _looked([], quota=5, through=False).behind(["default"], 100.5) == {}
    assert _marks(_looked(_jobs((5, HOUR_AGO, 7)), quota=5, through=False))[5:] == [
        Mark(HOUR_AGO, 7),
        *[None] * 4,
    ]


def test_a_time_that_python_cannot_hold_is_no_mark() -> None:
    """It may stand for minus infinity: behind its mark older jobs would not be seen."""
    assert _marks(_looked(_jobs((5, datetime(1, 1, 2, tzinfo=UTC), 7))))[5] is None


def test_marks_stand_in_utc() -> None:
    """When clocks are set back, 2:30 comes before 2:10: of one zone Python compares what the clocks show."""
    berlin = ZoneInfo("Europe/Berlin")
    before, after = (
        datetime(2026, 10, 25, 2, 30, tzinfo=berlin),
        datetime(2026, 10, 25, 2, 10, tzinfo=berlin, fold=1),
    )
    assert before > after
    marks = _marks(_looked(_jobs((5, before, 7)), time=after))
    assert marks[5] == Mark(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), 7)
    assert marks[0] == Mark(datetime(2026, 10, 25, 1, 10, tzinfo=UTC) - GRACE, SMALLEST_ID)


@pytest.mark.parametrize(
    ("seconds", "interval"),
    [(0.0, FULL_LOOK_INTERVAL), (0.2, SHARE * 0.2), (60.0, LONGEST_INTERVAL)],
)
def test_full_looks_come_again_and_again(seconds: float, interval: float) -> None:
    """As a rule every second, more rarely the longer they take, but never more rarely than the bound says."""
    low_water = _looked([], quota=1, seconds=seconds)
    assert low_water.behind(["default"], 100.0 + interval - 0.01)
    assert low_water.behind(["default"], 100.0 + interval) == {}
    assert low_water.full_at == {"default": 100.0 + interval}
    assert _looked([], quota=1, seconds=seconds, jitter=1.0).full_at == {
        "default": 100.0 + interval * (1 - JITTER)
    }
    assert _looked([], before=low_water, quota=1, hinted=True, seconds=60.0).full_at == low_water.full_at


def test_what_is_given_back_lowers_its_mark() -> None:
    """The runner's own releases don't wait for a full look; the marks of others stay, and lower ones too."""
    low_water = _looked(_jobs((5, HOUR_AGO + SECOND, 9)))
    back = low_water.returned(_jobs((5, HOUR_AGO, 7), (5, HOUR_AGO + SECOND, 9), (8, HOUR_AGO, 1)))
    assert _marks(back) == [NEWEST] * 5 + [Mark(HOUR_AGO, 6)] + [None] * 4
    assert back.returned([claimed_job(queue="other")]) == back
    late = claimed_job(run_at=NOON)
    assert back.returned([late]) == back


# What the dispatcher makes of it.


def _state(**changes: Any) -> Dispatch:
    lanes = {"default": Lane(4)}
    values: dict[str, Any] = {
        "lanes": lanes,
        "poll_interval": 60.0,
        "lease": 120.0,
        "renewal_interval": 40.0,
        "token": UUID(int=1),
    }
    return Dispatch(**(values | changes))


def _answer(claim: Claim, jobs: Mapping[str, list[ClaimedJob]], *, unsettled: int = 0) -> Claimed:
    """As the dispatcher's hands answer: the time comes with full looks alone."""
    every = [job for queue in jobs.values() for job in queue]
    full = len(claim.behind) < len(claim.quotas)
    seen = sight(ClaimAnswer(every, through=True), seconds=0.0, now=NOON if full else None)
    got = {queue: len(of_queue) for queue, of_queue in jobs.items()}
    return Claimed(claim.quotas, got, unsettled, 0.0, claim.behind, seen)


def _claim(state: Dispatch, *events: Any, now: float) -> tuple[Dispatch, Claim]:
    state, (claim,) = step(state, events, now)
    assert isinstance(claim, Claim)
    return state, claim


def _full(count: int = 4) -> dict[str, list[ClaimedJob]]:
    return {"default": [claimed_job(run_at=HOUR_AGO) for _ in range(count)]}


def test_claims_begin_behind_the_marks_until_a_full_look_is_due() -> None:
    """The first one begins with the first job, those of the next second don't."""
    state, claim = _claim(_state(), now=100.0)
    assert claim.behind == {}
    brought = _full()
    state, claim = _claim(state, _answer(claim, brought), Freed({"default": 4}), now=100.0)
    assert claim.behind["default"][5] == Mark(HOUR_AGO, brought["default"][-1].id)
    state, claim = _claim(state, _answer(claim, _full()), Freed({"default": 4}), now=100.9)
    assert "default" in claim.behind
    _, claim = _claim(state, _answer(claim, _full()), Freed({"default": 4}), now=101.0)
    assert claim.behind == {}


def test_an_idle_runner_looks_through_once_it_is_due_however_long_its_polls() -> None:
    """What was committed late waits for the full look and no longer; then the poll interval holds again."""
    state, claim = _claim(_state(), now=100.0)
    state, claim = _claim(state, _answer(claim, _full()), Freed({"default": 4}), now=100.5)
    state, actions = step(state, [_answer(claim, {})], 100.6)
    assert claim.behind
    assert actions == [WaitUntil(101.5)]
    state, claim = _claim(state, now=101.5)
    assert claim.behind == {}
    assert step(state, [_answer(claim, {})], 101.5)[1] == [WaitUntil(161.5)]


def test_queues_look_through_in_their_own_time() -> None:
    """One that is full does not keep another, which is asked rarely, from being looked through."""
    state = _state(lanes={"full": Lane(4), "slow": Lane(4, not_before=100.5)}, poll_interval=1.0)
    state, claim = _claim(state, now=100.0)
    state, claim = _claim(
        state, _answer(claim, {"full": [claimed_job(queue="full")] * 4}), Freed({"full": 4}), now=100.2
    )
    assert set(claim.behind) == {"full"} == set(claim.quotas)
    state, _ = step(state, [_answer(claim, {})], 100.3)
    state, claim = _claim(state, now=100.5)
    assert set(claim.quotas) == {"slow"}
    assert claim.behind == {}


def test_jobs_given_back_are_claimed_by_the_next_claim() -> None:
    """Their places are behind the marks by then."""
    state, claim = _claim(_state(), now=100.0)
    brought = _full()
    state, claim = _claim(state, _answer(claim, brought), Freed({"default": 4}), now=100.1)
    state, _ = step(state, [_answer(claim, _full()), GivenBack(brought["default"])], 100.2)
    _, claim = _claim(state, Freed({"default": 4}), now=100.3)
    assert claim.behind["default"][5] == Mark(HOUR_AGO, brought["default"][0].id - 1)


def test_after_the_release_of_a_lost_claim_everything_is_looked_through() -> None:
    """Which jobs came back nobody knows."""
    state, claim = _claim(_state(), now=100.0)
    state, _ = step(state, [_answer(claim, _full())], 100.1)
    _, claim = _claim(state, Released(UUID(int=7)), Freed({"default": 4}), now=100.2)
    assert claim.behind == {}


def test_a_burst_ends_after_a_full_look_alone() -> None:
    """What it finds nothing of behind the marks may stand before them: it looks at once."""
    state, claim = _claim(_state(burst=True), now=100.0)
    state, claim = _claim(state, _answer(claim, _full()), Freed({"default": 4}), now=100.1)
    assert claim.behind
    state, claim = _claim(state, _answer(claim, {}), now=100.2)
    assert claim.behind == {}
    assert Drained() in step(state, [_answer(claim, {})], 100.2)[1]


def test_a_burst_with_jobs_in_work_does_not_look_through_all_the_time() -> None:
    """It looks every blink whether they have added jobs; only the last of these looks must be a full one."""
    state, claim = _claim(_state(burst=True), now=100.0)
    state, claim = _claim(state, _answer(claim, _full()), Freed({"default": 3}), now=100.1)
    for turn in range(5):
        state, _ = step(state, [_answer(claim, {}, unsettled=1)], 100.2 + turn / 10)
        state, claim = _claim(state, now=100.25 + turn / 10)
        assert claim.behind


def test_looks_behind_marks_do_not_keep_a_burst_alive_for_hung_handlers() -> None:
    """The lease that these get counts on while looks that decide nothing come and go."""
    lanes = {"a": Lane(1), "b": Lane(1)}
    state, claim = _claim(_state(lanes=lanes, burst=True, lease=30.0, poll_interval=10.0), now=100.0)
    state, _ = step(state, [_answer(claim, {"a": [claimed_job(queue="a")]}, unsettled=0)], 100.0)
    now, drained = 100.0, False
    while not drained and now < 200.0:
        state, actions = step(state, [], now)
        for claim in [action for action in actions if isinstance(action, Claim)]:
            state, actions = step(state, [_answer(claim, {})], now)
            for again in [action for action in actions if isinstance(action, Claim)]:
                state, actions = step(state, [_answer(again, {})], now)
        drained = any(isinstance(action, Drained) for action in actions)
        now += 0.7
    assert drained
    assert now < 145.0
