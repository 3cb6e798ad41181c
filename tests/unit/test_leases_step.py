"""The lease keeper's step: a steady cadence, and a faster one after a failure."""

from __future__ import annotations

import pytest

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.maintenance.duties import OwnRenewal, RenewalFailed
from sa_jobqueue.records import Landing, Renewed
from sa_jobqueue.runner.leases import (
    Judge,
    Keeping,
    Renew,
    RenewalDone,
    RenewNow,
    StopKeeping,
    Tell,
    step,
)
from tests.support.executions import claimed_job


def test_it_renews_at_once_and_then_every_interval() -> None:
    """The interval counts from when a renewal was sent, so that slow answers don't stretch it."""
    state, actions = step(Keeping(40.0), (), 100.0)
    assert actions == [Renew(100.0)]
    state, actions = step(state, [RenewalDone([], 100.0)], 103.0)
    assert actions[-1] == WaitUntil(140.0)
    assert step(state, (), 139.9)[1] == [WaitUntil(140.0)]
    assert step(state, (), 140.0)[1] == [Renew(140.0)]


def test_a_renewal_slower_than_its_interval_is_followed_at_once() -> None:
    """Leases come before everything else."""
    state, _ = step(Keeping(1.0), (), 100.0)
    _, actions = step(state, [RenewalDone([], 100.0)], 105.0)
    assert actions[0] == Tell(OwnRenewal(100.0))
    assert actions[-1] == Renew(105.0)


@pytest.mark.parametrize(("retry_in", "wait"), [(0.1, 0.1), (5.0, 0.25)])
def test_a_failed_renewal_is_tried_again_well_within_the_lease(retry_in: float, wait: float) -> None:
    """Pauses grow, but never beyond a quarter of the interval: several tries fit before the lease ends."""
    state, (renew,) = step(Keeping(1.0), (), 100.0)
    state, actions = step(state, [Failed(renew, Exception(), retry_in)], 100.0)
    assert actions == [Tell(RenewalFailed()), WaitUntil(100.0 + wait)]
    assert step(state, (), 100.0 + wait)[1] == [Renew(100.0 + wait)]


def test_answers_are_judged_once() -> None:
    """What a renewal found is handed on as it is, lost and kept alike."""
    answers = [
        Renewed((job := claimed_job()).id, job.token, landing) for landing in (Landing.LANDED, Landing.LOST)
    ]
    state, _ = step(Keeping(1.0), (), 0.0)
    state, actions = step(state, [RenewalDone(answers, 0.0)], 0.0)
    assert actions[:2] == [Tell(OwnRenewal(0.0)), Judge(answers, 0.0)]
    assert step(state, (), 0.5)[1] == [WaitUntil(1.0)]


def test_whoever_waits_for_a_renewal_gets_one_now() -> None:
    """One for all who wait; the next one counts from it."""
    state, _ = step(Keeping(1.0), [RenewalDone([], 100.0)], 100.0)
    state, actions = step(state, [RenewNow(), RenewNow()], 100.5)
    assert actions == [Renew(100.5)]
    assert step(state, [RenewalDone([], 100.5)], 100.5)[1][-1] == WaitUntil(101.5)


def test_whoever_waits_does_not_make_it_hammer_a_database_that_is_away() -> None:
    """The pause after a failure is kept, however many ask."""
    state, (renew,) = step(Keeping(1.0), (), 100.0)
    state, _ = step(state, [Failed(renew, Exception(), 0.2)], 100.0)
    state, actions = step(state, [RenewNow()], 100.1)
    assert actions == [WaitUntil(100.2)]


def test_a_stop_ends_it() -> None:
    """Nothing is renewed after it, not even what is due."""
    assert step(Keeping(1.0), [StopKeeping()], 100.0)[1] == [End()]
