"""Faults seeded on purpose, one rule left out each: the simulation must find every one of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

from tests.simulation import checks, hands, rest, schedule
from tests.simulation.broken_verbs import VERBS
from tests.simulation.mutants import HANDS, STEPS
from tests.simulation.process import simulated
from tests.simulation.profiles import EVERYTHING
from tests.simulation.schedule import Schedule

#: So many schedules may pass before a mutant is found.
ENOUGH = 1500
MUTANTS = {**STEPS, **HANDS, **VERBS}


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner runs on the world's clock, chance and threads."""
    simulated(monkeypatch)


def test_every_check_is_put_to_the_test() -> None:
    """A check that was never seen to fail may never fail."""
    named = set[str]()
    for module in (checks, hands, rest, schedule):
        for message in re.findall(r"""\.wrong\(\s*f?["'](.{30})""", inspect.getsource(module)):
            name = re.match(r"[A-Z]+(-[A-Z]+)*", message)
            assert name or " died" in message, f"without a name: {message}"
            named |= {name[0]} if name else set()
    noticed = {mutant.noticed for mutant in MUTANTS.values()} | {"UNFENCED", "FOREIGN-PROGRESS"}
    assert {name for name in named if not any(one.startswith(name) for one in noticed)} == set()


def _found(make: Callable[[int], Schedule], noticed: str) -> list[str]:
    """What the first schedule finds that finds what was to be noticed."""
    for seed in range(ENOUGH):
        found = make(seed).run()
        assert not any("died" in line for line in found), f"a mutant must be wrong, not broken: {found}"
        if any(noticed in line for line in found):
            return found
    return []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule is there for a reason that the simulation knows."""
    mutant = MUTANTS[name]
    for where, attribute, instead in mutant.patches:
        monkeypatch.setattr(where, attribute, instead)
    assert _found(lambda seed: Schedule(seed, mutant.profile, steps=mutant.steps), mutant.noticed), (
        f"nobody noticed that {name}"
    )


def test_a_fence_left_out_is_found() -> None:
    """Without the guard by token a late writer settles what is somebody else's."""
    assert _found(lambda seed: Schedule(seed, EVERYTHING, fenced=False), "UNFENCED")
    assert _found(lambda seed: Schedule(seed, EVERYTHING, fenced=False), "FOREIGN-PROGRESS")
