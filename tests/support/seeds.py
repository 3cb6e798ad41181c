"""Which seeds a random test goes through: a few, unless the environment asks for others.

SA_JOBQUEUE_SIMULATION=20            twenty times as many
SA_JOBQUEUE_SIMULATION_FROM=100000   not from 0 on
SA_JOBQUEUE_SEED=blocks:17           that one alone, of the test of that name; all others are skipped
"""

from __future__ import annotations

import os

import pytest

_FACTOR = int(os.environ.get("SA_JOBQUEUE_SIMULATION", "1"))
_FIRST = int(os.environ.get("SA_JOBQUEUE_SIMULATION_FROM", "0"))
_NAME, _, _SEED = os.environ.get("SA_JOBQUEUE_SEED", "").partition(":")
#: One seed was asked for: it is to be looked at, and says nothing about what many of them reach.
ALONE = bool(_NAME)


def seeds(name: str, count: int) -> range:
    """Those of this test, so many by default; skips it when the seed of another one is asked for."""
    if not ALONE:
        return range(_FIRST, _FIRST + count * _FACTOR)
    if name != _NAME:
        pytest.skip(f"a seed of {_NAME!r} is asked for")
    return range(int(_SEED), int(_SEED) + 1)


def again(name: str, seed: int) -> str:
    """How to run this one once more."""
    return f"run it again with SA_JOBQUEUE_SEED={name}:{seed}"
