"""The lease keeper's step: a steady cadence, and a faster one after a failure."""

from __future__ import annotations

import pytest

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.maintenance.duties import OwnRenewal, RenewalFailed
from sa_jobqueue.records import Landing, Renewed
from sa_jobqueue.runner.leases import (
    Judge,
    Keeping,
    ProgressMade,
    ProgressWritten,
    Renew,
    RenewalDone,
    RenewNow,
    Tell,
    WriteProgress,
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


def _renewed(now: float) -> Keeping:
    """A keeper that has just renewed, its next renewal 40 s away."""
    state, _ = step(Keeping(40.0), (), now)
    return step(state, [RenewalDone([], now)], now)[0]


def test_progress_is_written_at_once_and_then_once_a_second() -> None:
    """However often handlers report, one statement a second carries it; without reports none is sent."""
    state, actions = step(_renewed(100.0), [ProgressMade(), ProgressMade()], 110.0)
    assert actions == [WriteProgress()]
    state, actions = step(state, [ProgressWritten(left=False)], 110.1)
    assert actions == [WaitUntil(140.0)]
    state, actions = step(state, [ProgressMade()], 110.2)
    assert actions == [WaitUntil(111.0)]
    assert step(state, (), 111.0)[1] == [WriteProgress()]


def test_what_could_not_be_written_is_due_a_second_later() -> None:
    """Somebody holds a row: its progress is tried again, no more often than any other."""
    state, _ = step(_renewed(100.0), [ProgressMade()], 110.0)
    state, actions = step(state, [ProgressWritten(left=True)], 110.0)
    assert actions == [WaitUntil(111.0)]
    assert step(state, (), 111.0)[1] == [WriteProgress()]


def test_a_failed_write_of_progress_is_no_failed_renewal() -> None:
    """Maintenance hears nothing of it, the next renewal stays where it was, and the pause grows with the failures."""
    state, (write,) = step(_renewed(100.0), [ProgressMade()], 110.0)
    state, actions = step(state, [Failed(write, Exception(), 5.0)], 110.0)
    assert actions == [WaitUntil(115.0)]
    state, (write,) = step(state, (), 115.0)
    state, actions = step(state, [Failed(write, Exception(), 0.1)], 115.0)
    assert actions == [WaitUntil(116.0)]
    assert step(state, (), 140.0)[1] == [Renew(140.0)]


def test_leases_come_before_progress() -> None:
    """Where both are due the renewal is sent first, and progress after its answer."""
    state, actions = step(_renewed(100.0), [ProgressMade()], 140.0)
    assert actions == [Renew(140.0)]
    assert step(state, [RenewalDone([], 140.0)], 140.1)[1][-1] == WriteProgress()
