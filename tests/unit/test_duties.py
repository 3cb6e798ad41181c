"""The maintenance step: duties in their intervals, gentle ones only when the living had time to renew."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from sqlalchemy.exc import OperationalError

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.maintenance.duties import (
    Connect,
    Connected,
    Do,
    Done,
    Duty,
    Maintaining,
    OwnRenewal,
    RenewalFailed,
    step,
)

PLAIN, GENTLE = Duty("plain", 60.0), Duty("gentle", 5.0, gentle=True)
OUTAGE = OperationalError("SELECT ...", {}, Exception("server closed the connection"))


class _RefusedError(Exception):
    sqlstate = "57014"


REFUSED = OperationalError("SELECT ...", {}, _RefusedError())


def _connected(*duties: Duty, at: float = 100.0, renewed: bool = True) -> Maintaining:
    state, actions = step(Maintaining(duties, patience=40.0), (), at)
    assert actions == [Connect()]
    state, _ = step(state, [Connected()], at)
    return step(state, [OwnRenewal(at)], at)[0] if renewed else state


def _first(state: Maintaining, *events: Any, now: float) -> tuple[Maintaining, Any]:
    state, (action,) = step(state, events, now)
    return state, action


def test_duties_recur_in_their_intervals() -> None:
    """At once when it may, then every interval after it was done."""
    state, action = _first(_connected(PLAIN), now=101.0)
    assert action == Do("plain")
    state, action = _first(state, Done("plain", more=False), now=110.0)
    assert action == WaitUntil(170.0)
    assert _first(state, now=170.0)[1] == Do("plain")


def test_a_full_batch_goes_on_at_once() -> None:
    """What is left behind by an outage is worked off without pauses."""
    state, _ = _first(_connected(PLAIN), now=101.0)
    assert _first(state, Done("plain", more=True), now=102.0)[1] == Do("plain")


def test_the_first_gentle_duty_comes_one_renewal_interval_after_connecting() -> None:
    """And after a renewal of our own: the living get their chance before anybody judges them."""
    state = _connected(GENTLE, at=100.0, renewed=False)
    assert _first(state, now=500.0)[1] == WaitUntil(None)
    state, action = _first(state, OwnRenewal(110.0), now=110.0)
    assert action == WaitUntil(140.0)
    assert _first(state, now=140.0)[1] == Do("gentle")


def test_a_renewal_from_before_the_connection_does_not_count() -> None:
    """It was sent before the outage, and says nothing about the time after it."""
    state = _connected(GENTLE, at=100.0, renewed=False)
    state, action = _first(state, OwnRenewal(99.0), now=150.0)
    assert action == WaitUntil(None)
    assert _first(state, OwnRenewal(150.0), now=150.0)[1] == Do("gentle")


def test_an_outage_while_a_gentle_duty_waits_is_told_by_the_keeper() -> None:
    """Maintenance sends nothing meanwhile and would not notice: patience begins anew with each failed renewal."""
    state = _connected(GENTLE)
    state, action = _first(state, RenewalFailed(), now=110.0)
    assert action == WaitUntil(None)
    state, action = _first(state, OwnRenewal(139.0), now=139.0)
    assert action == WaitUntil(150.0)


def test_patience_begins_when_an_outage_ends() -> None:
    """Not when it began: however long it was, the first rescue comes one renewal interval after the reconnection."""
    state = _connected(GENTLE)
    state, action = _first(state, Failed(Do("gentle"), OUTAGE, 0.1), now=200.0)
    assert action == WaitUntil(200.1)
    for now in (201.0, 239.0, 1000.0):
        state, action = _first(state, now=now)
        assert action == Connect()
        state, action = _first(state, Failed(Connect(), OUTAGE, 5.0), now=now)
        assert action == WaitUntil(now + 5.0)
    state, action = _first(state, OwnRenewal(1004.0), now=1005.0)
    assert action == Connect()
    state, action = _first(state, Connected(), now=1005.0)
    assert action == WaitUntil(None)
    state, action = _first(state, OwnRenewal(1005.5), now=1005.5)
    assert action == WaitUntil(1045.0)


def test_an_outage_seen_by_any_duty_gives_the_gentle_ones_their_patience() -> None:
    """They share a connection: whoever meets the outage first, nobody is judged right after it."""
    state, _ = _first(_connected(PLAIN, GENTLE), now=141.0)
    state, _ = _first(state, Failed(Do("plain"), OUTAGE, 0.1), now=150.0)
    state, action = _first(state, now=150.1)
    assert action == Connect()
    state, _ = _first(state, Connected(), now=150.2)
    state, _ = _first(state, Done("plain", more=False), OwnRenewal(151.0), now=151.0)
    assert _first(state, now=190.0)[1] == WaitUntil(190.2)


def test_a_duty_that_always_has_more_starves_no_other() -> None:
    """Between two batches of a flood that never ends whatever else is due gets its turn, and the flood after that."""
    state = _connected(PLAIN, GENTLE)
    done, now = {"plain": 0, "gentle": 0}, 141.0
    while now < 200.0:
        state, action = _first(state, now=now)
        assert isinstance(action, Do)
        done[action.name] += 1
        now += 0.03
        state, _ = step(state, [Done(action.name, more=action.name == "plain")], now)
    assert done["gentle"] >= 11
    assert done["plain"] > 1000


def test_a_duty_that_is_refused_for_ever_holds_up_no_other() -> None:
    """A statement that always times out costs that duty alone: jobs of lost runners are rescued all the same."""
    state = _connected(PLAIN, GENTLE)
    rescues, now = 0, 101.0
    while now < 400.0:
        state, action = _first(state, now=now)
        match action:
            case Do("plain"):
                state, action = _first(state, Failed(action, REFUSED, 2.0), now=now)
            case Do("gentle"):
                rescues += 1
                state, action = _first(state, Done("gentle", more=False), now=now)
        now = action.at if isinstance(action, WaitUntil) and action.at is not None else now
    assert rescues > 40


def test_a_gentle_duty_that_is_refused_is_patient_again() -> None:
    """What kept it from the table may have kept others from their renewals."""
    state, action = _first(_connected(GENTLE), now=141.0)
    assert action == Do("gentle")
    state, action = _first(state, Failed(Do("gentle"), REFUSED, 0.1), now=150.0)
    assert action == WaitUntil(None)
    assert _first(state, OwnRenewal(160.0), now=160.0)[1] == WaitUntil(190.0)


def test_neither_of_two_backlogs_starves_the_other() -> None:
    """Old jobs by the million, lost ones by the thousand: their batches take turns, whichever has more."""
    state, done = _connected(PLAIN, GENTLE), []
    for turn in range(1000):
        now = 141.0 + turn * 0.01
        state, action = _first(state, *(Done(name, more=True) for name in done[-1:]), now=now)
        assert isinstance(action, Do)
        done.append(action.name)
    assert set(pairwise(done)) == {("plain", "gentle"), ("gentle", "plain")}


def test_a_backlog_holds_up_no_duty_that_comes_due() -> None:
    """A rescue that becomes due while batch follows batch is the very next thing."""
    state, action = _first(_connected(PLAIN, GENTLE), now=141.0)
    while action != Do("gentle"):
        state, action = _first(state, Done("plain", more=True), now=141.5)
    state, action = _first(state, Done("gentle", more=False), now=142.0)
    for now in (143.0, 145.0, 146.9):
        assert action == Do("plain")
        state, action = _first(state, Done("plain", more=True), now=now)
    assert _first(state, Done("plain", more=True), now=147.1)[1] == Do("gentle")
