"""Faults seeded on purpose, one rule left out each: the simulation must find every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sa_jobqueue.loop import Failed
from sa_jobqueue.maintenance import duties
from sa_jobqueue.records import Landing, LeaseKey, Settlement
from sa_jobqueue.runner import attempt, dispatch, leases, settle
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.dispatch_messages import Freed, OutcomesBlocked
from sa_jobqueue.runner.executors.protocol import Execution
from sa_jobqueue.runner.verdict import verdict
from tests.simulation.runner import LEASE, Steps
from tests.simulation.schedule import (
    BLOCKS,
    CALM,
    DOUBTS,
    EVERYTHING,
    LATE_JOBS,
    LOST_ANSWERS,
    OUTAGES,
    TAKEOVERS,
    TIMEOUTS,
    Profile,
    Schedule,
    simulated,
)
from tests.simulation.store import FakeStore

#: So many schedules may pass before a mutant is found.
ENOUGH = 1500


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine and the hands run on the world's clock and chance."""
    simulated(monkeypatch)


def _failed_batch_dropped(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    state, actions = settle.step(state, events, now)
    if any(isinstance(event, Failed) for event in events):
        state = replace(state, doubtful=())
    return state, actions


def _freed_not_heard(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    return dispatch.step(state, [event for event in events if not isinstance(event, Freed)], now)


def _slots_freed_while_handlers_run(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    state, actions = settle.step(state, events, now)
    ended = [event._replace(still_runs=False) for event in events if getattr(event, "still_runs", False)]
    return state, [*actions, settle.Tell(settle.freed(ended))]


def _lost_outcomes_tried_for_ever(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    def busy(event: Any) -> Any:
        if not isinstance(event, settle.Answered):
            return event
        answers = [
            answer._replace(landing=Landing.BUSY) if answer.landing is Landing.LOST else answer
            for answer in event.answers
        ]
        return replace(event, answers=answers)

    return settle.step(state, [busy(event) for event in events], now)


def _doubt_forgotten(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    state, actions = settle.step(state, events, now)
    return state, [
        replace(action, again=False) if isinstance(action, settle.Flush) else action for action in actions
    ]


def _doubt_forgotten_behind_a_lock(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    state, actions = settle.step(state, events, now)
    delayed = tuple(
        replace(delay, again=False) if delay.landing is Landing.BUSY else delay for delay in state.delayed
    )
    return replace(state, delayed=delayed), actions


def _lost_lease_ignored(state: leases.Keeping, events: Sequence[Any], now: float) -> Any:
    state, actions = leases.step(state, events, now)
    return state, [action for action in actions if not isinstance(action, leases.Judge)]


def _renewals_too_rare(state: leases.Keeping, events: Sequence[Any], now: float) -> Any:
    return leases.step(replace(state, interval=LEASE * 2), events, now)


def _blocked_ignored(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    heard = [event for event in events if not isinstance(event, OutcomesBlocked)]
    return dispatch.step(state, heard, now)


def _lost_claims_forgotten(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    state, actions = dispatch.step(state, events, now)
    return replace(state, lost=()), actions


def _lost_claims_released_once(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    state, actions = dispatch.step(state, events, now)
    return replace(state, lost=tuple(claim for claim in state.lost if not claim.answered)), actions


def _tokens_used_twice(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    following, actions = dispatch.step(state, events, now)
    failed = any(isinstance(event, Failed) for event in events)
    return replace(following, token=state.token) if failed else following, actions


def _never_looked_through(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    never = dict.fromkeys(state.low_water.marks, float("inf"))
    return dispatch.step(replace(state, low_water=replace(state.low_water, full_at=never)), events, now)


def _no_patience(state: duties.Maintaining, events: Sequence[Any], now: float) -> Any:
    hasty = tuple(replace(duty, gentle=False) for duty in state.duties)
    return duties.step(replace(state, duties=hasty), events, now)


def _patience_not_renewed(state: duties.Maintaining, events: Sequence[Any], now: float) -> Any:
    """As if the time before the outage counted after it."""
    after, actions = duties.step(state, [event for event in events if event != duties.RenewalFailed()], now)
    if duties.Connected() in events:
        after = replace(after, well_since=now - after.patience, renewed_at=now)
    return after, actions


MUTANTS: dict[str, tuple[Profile, Steps]] = {
    "a failed batch is dropped": (EVERYTHING, Steps(settle=_failed_batch_dropped)),
    "freed slots are not heard of": (EVERYTHING, Steps(dispatch=_freed_not_heard)),
    "slots are freed while handlers run": (TIMEOUTS, Steps(settle=_slots_freed_while_handlers_run)),
    "lost outcomes are tried for ever": (EVERYTHING, Steps(settle=_lost_outcomes_tried_for_ever)),
    "a lost answer is not reconciled": (LOST_ANSWERS, Steps(settle=_doubt_forgotten)),
    "a lost answer is forgotten behind a lock": (LOST_ANSWERS, Steps(settle=_doubt_forgotten_behind_a_lock)),
    "a lost lease is ignored": (TAKEOVERS, Steps(leases=_lost_lease_ignored)),
    "leases are renewed too rarely": (CALM, Steps(leases=_renewals_too_rare)),
    "claims go on while outcomes are blocked": (EVERYTHING, Steps(dispatch=_blocked_ignored)),
    "lost claims are forgotten": (LOST_ANSWERS, Steps(dispatch=_lost_claims_forgotten)),
    "lost claims are released once": (LOST_ANSWERS, Steps(dispatch=_lost_claims_released_once)),
    "a failed claim's token is used again": (LOST_ANSWERS, Steps(dispatch=_tokens_used_twice)),
    "queues are looked through but once": (LATE_JOBS, Steps(dispatch=_never_looked_through)),
    "rescue has no patience": (OUTAGES, Steps(duties=_no_patience)),
    "patience does not begin anew after an outage": (OUTAGES, Steps(duties=_patience_not_renewed)),
}


def _completed_by_the_fence(execution: Execution) -> bool:
    return execution.completion is not None and execution.fenced


def _swallowed(job: Any, handler: Any, **said: Any) -> Any:
    return verdict(job, handler, **said | {"completion": None})


def _judged_past_the_fence(book: Book, key: LeaseKey) -> Execution | None:
    execution = book._held.get(key)
    return None if execution is None or execution.settling else execution


def _doubt_is_none(execution: Execution) -> bool:
    return False


def _read_instead_of_written(
    store: FakeStore, settlements: Sequence[Settlement], *, again: bool = False
) -> Any:
    """What is in doubt is looked up: a row that is ours shows that no completion has landed."""
    answers = _SETTLE(store, settlements, again=again)
    return [
        answer._replace(landing=Landing.LOST) if again and answer.landing is Landing.BUSY else answer
        for answer in answers
    ]


_SETTLE = FakeStore.settle
#: What is left out of the handling of completions in the handlers' own transactions: where, and what stands there instead.
COMPLETION_MUTANTS: dict[str, tuple[Profile, object, str, object]] = {
    "a completion counts before its COMMIT": (
        BLOCKS,
        Execution,
        "completed",
        property(_completed_by_the_fence),
    ),
    "a return after a failed completion completes": (BLOCKS, attempt, "verdict", _swallowed),
    "the keeper judges past the fence": (BLOCKS, Book, "judge", _judged_past_the_fence),
    "what follows a doubtful completion is sent as a first try": (
        DOUBTS,
        Execution,
        "doubtful",
        property(_doubt_is_none),
    ),
    "a doubtful completion is reconciled by a read": (DOUBTS, FakeStore, "settle", _read_instead_of_written),
}


def _first_found(make: Callable[[int], Schedule]) -> list[str]:
    for seed in range(ENOUGH):
        if found := make(seed).run():
            assert not any("died" in line for line in found), "a mutant must be wrong, not broken"
            return found
    return []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_left_out_is_found(mutant: str) -> None:
    """Each rule of the steps is there for a reason that the simulation knows."""
    profile, steps = MUTANTS[mutant]
    assert _first_found(lambda seed: Schedule(seed, profile, steps=steps)), f"nobody noticed that {mutant}"


@pytest.mark.parametrize("mutant", COMPLETION_MUTANTS)
def test_a_rule_of_completions_left_out_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is each rule about completions in the handlers' own transactions."""
    profile, where, name, instead = COMPLETION_MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    assert _first_found(lambda seed: Schedule(seed, profile)), f"nobody noticed that {mutant}"


def test_a_fence_left_out_is_found() -> None:
    """Without the guard by token a late writer settles what is somebody else's."""
    found = _first_found(lambda seed: Schedule(seed, EVERYTHING, fenced=False))
    assert any("under another token" in line for line in found)
