"""Hundreds of histories of two runners: no job lost, none completed twice, attempts right, nothing left at the end.

More of them, or one alone, whose history is printed: `tests/support/seeds.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import profiles
from tests.simulation.process import simulated
from tests.simulation.profiles import EVERYTHING, Profile
from tests.simulation.schedule import Schedule
from tests.support.seeds import ALONE, again, seeds

_USUAL = {"JobsClaimed", "JobStarted", "JobSettled"}
_REPAIR = {"LoopFailed", "LoopRecovered", "SettleDelayed"}
_RESCUE = {"JobRescued", "OutcomeDropped"}
#: How many of each, and what must have happened in them.
PROFILES: dict[str, tuple[int, set[str]]] = {
    "calm": (30, _USUAL),
    "talk": (40, _USUAL),
    "prompt": (30, _USUAL),
    "floods": (30, _USUAL),
    "everything": (150, _USUAL | _REPAIR | _RESCUE | {"CancelRequested"}),
    "lost_answers": (60, _USUAL | _REPAIR),
    "late_jobs": (40, _USUAL | {"LoopFailed", "LoopRecovered"}),
    "outages": (60, _USUAL | {"LoopFailed", "LoopRecovered"}),
    "timeouts": (80, _USUAL | {"HandlerTimedOut", "OutcomeDropped"}),
    "blocks": (150, _USUAL | _REPAIR | _RESCUE | {"CompletionInDoubt", "HandlerTimedOut"}),
    "doubts": (100, _USUAL | {"CompletionInDoubt", "OutcomeDropped"}),
    "takeovers": (60, _USUAL | _REPAIR | _RESCUE | {"LeaseLost"}),
    "people": (80, _USUAL | _REPAIR | {"CancelRequested"}),
    "forgetting": (80, _USUAL | {"JobsPruned", "PruneRefused", "CompletionInDoubt"}),
}


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner runs on the world's clock, chance and threads."""
    simulated(monkeypatch)


@pytest.mark.parametrize("name", PROFILES)
def test_all_comes_to_rest_whatever_happens(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With refused, lost and late statements, outages, pauses, crashes, stops, locks, people and preempted threads."""
    count, reached = PROFILES[name]
    profile: Profile = getattr(profiles, name.upper())
    happened: Counter[str] = Counter()
    for seed in seeds(name, count):
        schedule = Schedule(seed, profile, told=ALONE)
        found = schedule.run()
        if ALONE:
            with capsys.disabled():
                print(*schedule.world.history or (), sep="\n")
        assert not found, "\n".join([f"in the schedule {seed} of {name!r}:", *found, again(name, seed)])
        happened += schedule.checks.events
    if not ALONE:
        assert set(happened) >= reached, "the schedules don't reach the corners that they are there for"


def test_a_seed_is_a_history() -> None:
    """The same seed gives the same history to the last line, so that a failure can be looked at again."""

    def history(seed: int) -> list[str] | None:
        schedule = Schedule(seed, EVERYTHING, told=True)
        schedule.run()
        return schedule.world.history

    for seed in range(5):
        assert history(seed) == history(seed)
    assert history(1) != history(2)
