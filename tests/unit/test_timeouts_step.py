"""The timekeeper's step: woken for the nearest timeout alone, and a lease's rest of patience after it."""

from __future__ import annotations

from uuid import UUID

import pytest

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.runner.timeouts import Began, GiveUp, TimedOut, TimeOut, Timing, step

FIRST, SECOND = (1, UUID(int=1)), (2, UUID(int=2))


def test_with_nobody_under_time_it_sleeps() -> None:
    """An idle runner is not woken."""
    assert step(Timing(80.0), (), 100.0)[1] == [WaitUntil(None)]


def test_it_wakes_for_the_nearest_timeout() -> None:
    """To the moment, however long a lease is; what begins later and times out later changes nothing."""
    state, actions = step(Timing(80.0), [Began(130.0), Began(110.0), Began(150.0)], 100.0)
    assert actions == [WaitUntil(110.0)]
    assert step(state, (), 109.9)[1] == [WaitUntil(110.0)]
    assert step(state, (), 110.0)[1] == [TimeOut(110.0)]


def test_who_timed_out_has_the_rest_of_the_lease() -> None:
    """Then the job is given up, once; the next timeout is waited for meanwhile."""
    state, (action,) = step(Timing(80.0), [Began(110.0)], 110.0)
    assert action == TimeOut(110.0)
    state, actions = step(state, [TimedOut((FIRST,), following=150.0)], 110.0)
    assert actions == [WaitUntil(150.0)]
    state, actions = step(state, [TimedOut((SECOND,), following=None)], 150.0)
    assert actions == [WaitUntil(190.0)]
    state, actions = step(state, (), 190.0)
    assert actions == [GiveUp((FIRST,)), WaitUntil(230.0)]
    state, actions = step(state, (), 230.0)
    assert actions == [GiveUp((SECOND,)), WaitUntil(None)]
    assert state == Timing(80.0)


def test_who_begins_while_others_time_out_is_not_forgotten() -> None:
    """The answer tells of those it has seen, the event of a later one."""
    state, _ = step(Timing(80.0), [Began(110.0)], 110.0)
    state, actions = step(state, [TimedOut((), following=None), Began(112.0)], 110.0)
    assert actions == [WaitUntil(112.0)]


@pytest.mark.parametrize("action", [TimeOut(110.0), GiveUp((FIRST,))])
def test_a_failure_is_a_fault(action: TimeOut | GiveUp) -> None:
    """Half of it may be done, and who has been taken out of the watch would be timed by nobody: the runner must end."""
    with pytest.raises(ZeroDivisionError):
        step(Timing(80.0), [Failed(action, ZeroDivisionError(), 0.5)], 110.0)
