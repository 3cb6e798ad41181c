"""The listener's step: what it tells the dispatcher, when it checks, how it comes back, how it gives up and ends."""

from __future__ import annotations

from typing import Any

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.runner.dispatch_messages import Ears, Woken
from sa_jobqueue.runner.listening import (
    CHECK_INTERVAL,
    UNHEARD_PAUSE,
    Check,
    Checked,
    Hear,
    Heard,
    Listen,
    Listened,
    Listening,
    Tell,
    step,
)

LOST = ConnectionError("server closed the connection")


def _listening(now: float = 100.0) -> Listening:
    state, _ = step(Listening(), [Listened(True, 0.5)], now)
    return state


def test_it_begins_by_listening() -> None:
    """Nothing is told before it is known whether anything is heard."""
    assert step(Listening(), (), 100.0)[1] == [Listen()]


def test_once_it_listens_the_dispatcher_looks() -> None:
    """What was committed before could tell nobody."""
    _, actions = step(Listening(), [Listened(True, 0.5)], 100.0)
    assert actions == [Tell(Ears(True)), Tell(Woken(0.5)), Hear(100.0 + CHECK_INTERVAL)]


def test_a_notification_wakes_the_dispatcher() -> None:
    """And is a sign of life; waiting that ended without one is neither."""
    state, actions = step(_listening(), [Heard(True, 0.25)], 110.0)
    assert actions == [Tell(Woken(0.25)), Hear(110.0 + CHECK_INTERVAL)]
    assert step(state, [Heard(False, 0.25)], 120.0)[1] == [Hear(110.0 + CHECK_INTERVAL)]


def test_a_silent_connection_is_checked() -> None:
    """A proxy keeps a connection open with nobody behind it."""
    late = 100.0 + CHECK_INTERVAL
    state, actions = step(_listening(), [Heard(False, 0.0)], late)
    assert actions == [Check()]
    assert step(state, [Checked()], late)[1] == [Hear(late + CHECK_INTERVAL)]


def test_a_lost_connection_is_made_anew() -> None:
    """The dispatcher learns of the loss at once and looks when it is over; failures in between are told to nobody."""
    state = _listening()
    failed: Any = Failed(Hear(130.0), LOST, 0.1)
    state, actions = step(state, [failed], 110.0)
    assert actions == [Tell(Ears(False)), WaitUntil(110.1)]
    state, actions = step(state, (), 110.1)
    assert actions == [Listen()]
    state, actions = step(state, [Failed(Listen(), LOST, 0.2)], 111.0)
    assert actions == [WaitUntil(111.2)]
    _, actions = step(state, [Listened(True, 0.0)], 112.0)
    assert actions[:2] == [Tell(Ears(True)), Tell(Woken(0.0))]


def test_what_hears_nothing_is_given_up() -> None:
    """A pooler is in between: it waits for its end, and the dispatcher goes on polling as it did."""
    state, actions = step(Listening(), [Listened(False, 0.0, for_good=True)], 100.0)
    assert actions == [WaitUntil(None)]
    assert step(state, (), 9999.0)[1] == [WaitUntil(None)]


def test_what_was_not_heard_of_a_server_is_tried_again() -> None:
    """A failover or a busy server may have been all that was wrong; the dispatcher is told nothing until it is heard."""
    state, actions = step(Listening(), [Listened(False, 0.0)], 100.0)
    assert actions == [WaitUntil(100.0 + UNHEARD_PAUSE)]
    state, actions = step(state, (), 100.0 + UNHEARD_PAUSE)
    assert actions == [Listen()]
    assert step(state, [Listened(True, 0.0)], 161.0)[1][0] == Tell(Ears(True))


def test_listening_again_ends_what_failed_before() -> None:
    """Whatever has failed, a check or the hearing, failed with the old connection."""
    assert Listen.recovers
