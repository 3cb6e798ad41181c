"""Hundreds of histories of two runners: no job lost, none completed twice, attempts right, nothing left at the end."""

from __future__ import annotations

import os
from collections import Counter

import pytest

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

#: SA_JOBQUEUE_SIMULATION=20 runs twenty times as many; SA_JOBQUEUE_SEED=<profile>:<seed> one alone.
FACTOR = int(os.environ.get("SA_JOBQUEUE_SIMULATION", "1"))
_USUAL = {"JobsClaimed", "JobStarted", "JobSettled"}
_REPAIR = {"LoopFailed", "LoopRecovered", "SettleDelayed"}
_RESCUE = {"JobRescued", "OutcomeDropped"}
PROFILES = {
    "calm": (CALM, 20, _USUAL),
    "everything": (EVERYTHING, 200, _USUAL | _REPAIR | _RESCUE | {"LeaseLost", "CancelRequested"}),
    "lost answers": (LOST_ANSWERS, 60, _USUAL | _REPAIR),
    "late jobs": (LATE_JOBS, 40, _USUAL | {"LoopFailed", "LoopRecovered"}),
    "outages": (OUTAGES, 60, _USUAL | {"LoopFailed", "LoopRecovered"}),
    "timeouts": (TIMEOUTS, 80, _USUAL | {"HandlerTimedOut", "OutcomeDropped"}),
    "blocks": (BLOCKS, 200, _USUAL | _REPAIR | _RESCUE | {"CompletionInDoubt", "HandlerTimedOut"}),
    "doubts": (DOUBTS, 100, _USUAL | {"CompletionInDoubt", "OutcomeDropped"}),
    "takeovers": (TAKEOVERS, 60, _USUAL | _REPAIR | _RESCUE | {"LeaseLost"}),
}


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine and the hands run on the world's clock and chance."""
    simulated(monkeypatch)


def _seeds(name: str, count: int) -> range:
    asked, _, seed = os.environ.get("SA_JOBQUEUE_SEED", "").partition(":")
    if not seed:
        return range(count * FACTOR)
    return range(int(seed), int(seed) + 1) if asked == name else range(0)


@pytest.mark.parametrize("name", PROFILES)
def test_all_comes_to_rest_whatever_happens(name: str) -> None:
    """With refused, lost and late statements, outages, pauses, crashes, stops, locks and cancellations."""
    profile, count, reached = PROFILES[name]
    seeds = _seeds(name, count)
    happened: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed, profile)
        found = schedule.run()
        again = f"replay it with SA_JOBQUEUE_SEED='{name}:{seed}'"
        assert not found, "\n".join([f"in the schedule {seed} of {name!r}:", *found, again])
        happened += schedule.checks.events
    if len(seeds) > 1:
        assert set(happened) >= reached, "the schedules don't reach the corners that they are there for"


def test_a_seed_is_a_history() -> None:
    """The same seed gives the same history to the last event, so that a failure can be looked at again."""

    def history(seed: int, profile: Profile) -> tuple[object, ...]:
        schedule = Schedule(seed, profile)
        schedule.run()
        rows = tuple(repr(row) for row in schedule.database.rows.values())
        return schedule.world.now, dict(schedule.checks.events), rows

    for seed in range(5):
        assert history(seed, EVERYTHING) == history(seed, EVERYTHING)
    assert history(1, EVERYTHING) != history(2, EVERYTHING)
