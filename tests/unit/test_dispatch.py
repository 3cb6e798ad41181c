"""The dispatcher's step: what it claims and when, backpressure, give-back, lost claims, bursts, the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.runner.dispatch import UNWRITTEN_LIMIT, Dispatch, step
from sa_jobqueue.runner.dispatch_messages import (
    Claim,
    Claimed,
    Count,
    Counted,
    Drained,
    Freed,
    GiveBack,
    OutcomesBlocked,
    ReleaseClaim,
    Released,
    StopClaiming,
    Woken,
    Written,
)
from sa_jobqueue.runner.pace import CLAIM_AHEAD_LIMIT, CLAIM_AHEAD_PATIENCE, SECOND_LOOK, Lane

BROKEN = OperationalError("UPDATE ...", {}, Exception("server closed the connection"))
UNREACHABLE = OperationalError(None, None, Exception("connection refused"))  # type: ignore[arg-type]


class _RefusedError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def _refused(sqlstate: str) -> OperationalError:
    return OperationalError("UPDATE ...", {}, _RefusedError(sqlstate))


REFUSED = _refused("57014")


def _state(*, queues: dict[str, int] | None = None, **changes: Any) -> Dispatch:
    values: dict[str, Any] = {
        "lanes": {queue: Lane(limit) for queue, limit in (queues or {"default": 4}).items()},
        "poll_interval": 1.0,
        "lease": 120.0,
        "renewal_interval": 40.0,
        "token": UUID(int=1),
    }
    return Dispatch(**(values | changes))


def _claimed(claim: Claim, got: dict[str, int], *, unsettled: int = 1, jitter: float = 0.0) -> Claimed:
    return Claimed(claim.quotas, got, unsettled, jitter)


def _after(state: Dispatch, *events: Any, now: float = 100.0) -> tuple[Dispatch, Sequence[Any]]:
    return step(state, events, now)


def _full(state: Dispatch, now: float = 100.0) -> Dispatch:
    """Every lane as full as it wants to be."""
    state, (claim,) = step(state, (), now)
    assert isinstance(claim, Claim)
    state, _ = step(state, [_claimed(claim, dict(claim.quotas))], now)
    return state


def test_it_claims_for_free_slots_and_then_waits_for_one() -> None:
    """The first claim asks for every slot, and a full house for nothing until a handler has finished."""
    state, (claim,) = _after(_state(queues={"a": 4, "b": 2}))
    assert claim.quotas == {"a": 4, "b": 2}
    state, actions = _after(state, _claimed(claim, {"a": 4, "b": 2}))
    assert actions == [WaitUntil(None)]
    _, (again,) = _after(state, Freed({"a": 1}))
    assert again.quotas == {"a": 1}


def test_claims_never_exceed_slots_and_what_is_claimed_ahead() -> None:
    """However fast handlers finish, a lane never holds more than its limit and the bound of claiming ahead."""
    state, now = _full(_state()), 100.0
    for turn in range(500):
        now += 0.001 * (turn % 7)
        held = state.lanes["default"].held
        state, actions = step(state, [Freed({"default": held}), Written(held)], now)
        for claim in [action for action in actions if isinstance(action, Claim)]:
            state, _ = step(state, [_claimed(claim, dict(claim.quotas))], now)
        assert 0 <= state.lanes["default"].held <= 4 + CLAIM_AHEAD_LIMIT
    assert state.lanes["default"].held == 4 + CLAIM_AHEAD_LIMIT


def test_every_claim_has_a_token_of_its_own() -> None:
    """Also the one that repeats a failed claim: what lands late must not pass for the newer one's."""
    state, (first,) = _after(_state())
    state, _ = _after(state, Failed(first, BROKEN, 0.1))
    _, (release, second) = _drain(state, now=101.0)
    assert isinstance(release, ReleaseClaim)
    assert isinstance(second, Claim)
    assert second.token != first.token == release.token


def _drain(state: Dispatch, *, now: float) -> tuple[Dispatch, list[Any]]:
    """What is done until there is something to wait for, every release answered and every claim filled."""
    done: list[Any] = []
    events: list[Any] = []
    while True:
        state, actions = step(state, events, now)
        events = []
        for action in actions:
            match action:
                case WaitUntil() | End():
                    return state, done
                case ReleaseClaim(token):
                    events.append(Released(token))
                case Claim():
                    events.append(_claimed(action, dict(action.quotas)))
            done.append(action)


@pytest.mark.parametrize(
    ("error", "lost"), [(BROKEN, 1), (RuntimeError(), 1), (UNREACHABLE, 0), (REFUSED, 0)]
)
def test_only_a_claim_that_may_have_landed_is_lost(error: Exception, lost: int) -> None:
    """What was never sent and what the server refused took nothing; of anything else nobody knows."""
    state, (claim,) = _after(_state())
    state, _ = _after(state, Failed(claim, error, 0.1))
    assert [one.token for one in state.lost] == [claim.token] * lost


def test_a_lost_claim_is_released_until_one_lease_later() -> None:
    """At once, then every renewal interval, for it may land late; the answer after one lease is the last one."""
    state, (claim,) = _after(_state(blocked=False), now=100.0)
    state, actions = _after(state, Failed(claim, BROKEN, 0.5), now=100.0)
    assert actions == [WaitUntil(100.5)]
    released = []
    now = 100.5
    while state.lost:
        state, done = _drain(state, now=now)
        assert ReleaseClaim(claim.token) in done
        released.append(now)
        now += 40.0
    assert released == [100.5, 140.5, 180.5, 220.5]


def test_a_lost_claim_is_not_forgotten_in_a_long_outage() -> None:
    """However long the database is away, the release is sent once it answers."""
    state, (claim,) = _after(_state(), now=100.0)
    state, _ = _after(state, Failed(claim, BROKEN, 0.5), OutcomesBlocked(True), now=100.0)
    for now in range(101, 1000, 10):
        state, actions = step(state, (), float(now))
        release = ReleaseClaim(claim.token)
        assert release in actions
        # Tried again well before anybody's patience with a lost runner is over.
        state, actions = step(state, [Failed(release, UNREACHABLE, 60.0)], float(now))
        assert actions[-1].at <= now + 10.0
    state, _ = step(state, [Released(claim.token)], 1000.0)
    assert state.lost == ()


def test_nothing_is_claimed_while_outcomes_are_blocked() -> None:
    """Work whose result can't be written down is not begun; afterwards it goes on at once."""
    state, actions = _after(_state(), OutcomesBlocked(True))
    assert actions == [WaitUntil(None)]
    _, actions = _after(state, Woken(), Freed({}))
    assert actions == [WaitUntil(None)]
    _, (claim,) = _after(state, OutcomesBlocked(False))
    assert claim.quotas == {"default": 4}


def test_nothing_is_claimed_while_too_much_is_unwritten() -> None:
    """A write that hangs is no failure yet: what a crash would run again stays bounded all the same."""
    state = _full(_state())
    state, _ = _after(state, Freed({"default": 4}))
    state = replace(state, unwritten=UNWRITTEN_LIMIT)
    state, actions = _after(state, Freed({"default": 0}, {"default": 1}))
    assert actions == [WaitUntil(None)]
    state, (claim,) = _after(state, Written(1))
    assert isinstance(claim, Claim)
    assert state.unwritten == UNWRITTEN_LIMIT


def test_an_outcome_in_place_of_a_running_handler_is_one_more_to_write() -> None:
    """Its slot stays taken, so nothing is claimed for it."""
    state = _full(_state())
    state, actions = _after(state, Freed({}, running=1))
    assert actions == [WaitUntil(None)]
    assert state.unwritten == 1


def test_a_failed_claim_waits_for_its_pause_even_when_woken() -> None:
    """A wake-up says that there is work, not that the database is well."""
    state, (claim,) = _after(_state())
    state, actions = _after(state, Failed(claim, UNREACHABLE, 2.0))
    assert actions == [WaitUntil(102.0)]
    assert _after(state, Woken(), now=101.0)[1] == [WaitUntil(102.0)]
    assert isinstance(_after(state, now=102.0)[1][0], Claim)


def test_polls_are_paced() -> None:
    """A short claim is followed by one look soon, an empty one by the poll interval less its jitter."""
    state, (claim,) = _after(_state())
    state, actions = _after(state, _claimed(claim, {"default": 1}))
    assert actions == [WaitUntil(100.0 + SECOND_LOOK)]
    state, (claim,) = _after(state, now=100.0 + SECOND_LOOK)
    _, actions = _after(state, _claimed(claim, {}, jitter=0.5), now=101.0)
    assert actions == [WaitUntil(101.0 + 0.95)]


def test_an_empty_queue_does_not_slow_down_a_full_one() -> None:
    """Each lane looks in its own rhythm: one without work polls, one with work claims as slots come free."""
    state, (claim,) = _after(_state(queues={"full": 4, "empty": 4}))
    state, _ = _after(state, _claimed(claim, {"full": 4}))
    for turn in range(1, 20):
        now = 100.0 + turn * 0.01
        held = state.lanes["full"].held
        state, (claim,) = _after(state, Freed({"full": held}), Written(held), now=now)
        assert claim.quotas["full"] >= 4
        assert "empty" not in claim.quotas
        state, _ = _after(state, _claimed(claim, dict(claim.quotas)), now=now)


def test_idle_queues_share_their_looks() -> None:
    """Ten empty queues cost one statement per poll interval, also when they drifted apart a little."""
    lanes = {f"q{n}": Lane(1, not_before=101.0 + n / 100) for n in range(10)}
    _, (claim,) = _after(_state(lanes=lanes), now=101.0)
    assert len(claim.quotas) == 10


def test_a_wake_up_looks_at_once() -> None:
    """Idle lanes don't wait for their poll when there is word of work."""
    state = _state(lanes={"default": Lane(4, not_before=200.0)})
    assert _after(state)[1] == [WaitUntil(200.0)]
    assert isinstance(_after(state, Woken())[1][0], Claim)


def test_a_stalled_lane_gives_back_what_waits_and_claims_no_more_ahead() -> None:
    """Jobs in line behind long ones become another runner's chance, and are not claimed ahead again."""
    state = _state(lanes={"default": Lane(2, held=52, recent=250.0, span=0.5, paced_at=100.0)})
    assert _after(state)[1] == [WaitUntil(100.0 + CLAIM_AHEAD_PATIENCE)]
    state, actions = _after(state, now=101.0)
    assert actions == [GiveBack(("default",)), WaitUntil(102.0)]
    _, actions = _after(state, Freed({}, {"default": 50}), now=101.1)
    assert actions == [WaitUntil(None)]


def test_a_burst_ends_only_when_nothing_is_left() -> None:
    """Not while a job of ours is in work or unwritten, not before every queue was asked, not with a claim in doubt."""
    state, (claim,) = _after(_state(queues={"a": 1, "b": 1}, burst=True))
    nothing = _claimed(claim, {}, unsettled=0)
    assert Drained() in _after(state, nothing)[1]
    assert Drained() not in _after(state, _claimed(claim, {}, unsettled=1))[1]
    assert Drained() not in _after(state, _claimed(claim, {"b": 1}, unsettled=0))[1]
    assert Drained() not in _after(state, Claimed({"a": 1}, {}, 0, 0.0))[1]
    lost, _ = _after(state, Failed(claim, BROKEN, 0.1))
    assert Drained() not in _after(lost, nothing)[1]
    answered, _ = _after(lost, Released(claim.token))
    assert Drained() in _after(answered, nothing)[1]
    assert Drained() not in _after(_state(queues={"a": 1, "b": 1}), nothing)[1]


def test_a_burst_ends_when_nothing_but_hung_handlers_holds_its_slots() -> None:
    """No job is held, and yet a queue can't be asked: that is told, one lease after it was first seen."""
    state = _state(queues={"a": 1, "b": 1}, burst=True, lease=30.0, poll_interval=10.0)
    state, (claim,) = _after(state)
    state, _ = _after(state, _claimed(claim, {"a": 1}))
    state, (claim,) = _after(state, now=110.0)
    assert claim.quotas == {"b": 1}
    state, actions = _after(state, _claimed(claim, {}, unsettled=0), now=110.0)
    assert actions == [WaitUntil(120.0)]
    for busy in (Freed({"a": 1}), _claimed(claim, {}, unsettled=1)):
        fresh, _ = _after(state, busy, _claimed(claim, {}, unsettled=0), now=120.0)
        assert not [it for it in _after(fresh, now=150.0)[1] if isinstance(it, Drained)]
    state, (claim,) = _after(state, now=140.0)
    (drained, *_) = _after(state, _claimed(claim, {}, unsettled=0), now=140.0)[1]
    assert isinstance(drained, Drained)
    assert "no slot is free in a:" in str(drained.fault)


def test_a_burst_without_any_slot_counts_what_it_holds() -> None:
    """It can't ask for anything, so it looks at itself now and then; other runners wait for what frees a slot."""
    assert _after(_full(_state()), now=500.0)[1] == [WaitUntil(None)]
    state = _full(_state(burst=True))
    state, actions = _after(state)
    assert actions == [WaitUntil(101.0)]
    state, actions = _after(state, now=101.0)
    assert actions == [Count()]
    state, actions = _after(state, Counted(1), now=101.0)
    assert actions == [WaitUntil(102.0)]
    state, _ = _after(state, Counted(0), now=102.0)
    state, _ = _after(state, Counted(1), now=103.0)
    state, _ = _after(state, Counted(0), now=104.0)
    assert _after(state, Counted(0), now=223.0)[1] == [Count()]
    assert isinstance(_after(state, Counted(0), now=224.0)[1][0], Drained)


def test_a_burst_that_may_claim_nothing_ends_with_the_reason() -> None:
    """What the server refuses for good will not pass by waiting; an outage or a deadlock does."""
    forbidden, deadlock = _refused("42501"), _refused("40P01")
    state, (claim,) = _after(_state(burst=True))
    assert Drained(forbidden) in _after(state, Failed(claim, forbidden, 0.1))[1]
    for error in (deadlock, UNREACHABLE, BROKEN):
        assert not [it for it in _after(state, Failed(claim, error, 0.1))[1] if isinstance(it, Drained)]
    patient, (claim,) = _after(_state())
    assert Drained(forbidden) not in _after(patient, Failed(claim, forbidden, 0.1))[1]


def test_a_burst_looks_again_soon_while_its_jobs_are_in_work() -> None:
    """They may add jobs or fail and be due again: the end must not wait for a poll interval."""
    state, (claim,) = _after(_state(burst=True, poll_interval=60.0))
    _, actions = _after(state, _claimed(claim, {}, unsettled=1))
    assert actions == [WaitUntil(100.0 + SECOND_LOOK)]


def test_a_stop_gives_back_and_ends() -> None:
    """Nothing is claimed after it, whatever else is in the inbox."""
    _, actions = _after(_full(_state()), Freed({"default": 4}), StopClaiming(until=105.0), Woken())
    assert actions == [GiveBack(("default",)), End()]


def test_a_stop_while_a_claim_is_in_flight_gives_back_what_it_brings() -> None:
    """The answer comes first, then the stop: its jobs are in the executor by then and are taken back."""
    state, (claim,) = _after(_state())
    state, actions = _after(state, _claimed(claim, {"default": 4}), StopClaiming(until=105.0))
    assert actions == [GiveBack(("default",)), End()]


def test_a_stop_releases_lost_claims_once_more_while_there_is_time() -> None:
    """Their jobs should not wait for a lease; a database that stays away does not hold up the end."""
    state, (claim,) = _after(_state())
    state, _ = _after(state, Failed(claim, BROKEN, 30.0))
    state, actions = _after(state, StopClaiming(until=105.0))
    assert actions == [GiveBack(("default",)), ReleaseClaim(claim.token)]
    assert _after(state, Released(claim.token))[1] == [End()]
    state, actions = _after(state, Failed(ReleaseClaim(claim.token), UNREACHABLE, 1.0))
    assert actions == [WaitUntil(101.0)]
    assert _after(state, now=101.0)[1] == [ReleaseClaim(claim.token)]
    assert _after(state, now=105.0)[1] == [End()]


@pytest.mark.parametrize("action", [Count(), GiveBack(("default",)), Drained()])
def test_what_asks_no_database_does_not_fail(action: Any) -> None:
    """Jobs that were taken back and not told would be held for ever, and a burst would never end: a fault."""
    with pytest.raises(ZeroDivisionError):
        step(_state(), [Failed(action, ZeroDivisionError(), 0.1)], 0.0)
