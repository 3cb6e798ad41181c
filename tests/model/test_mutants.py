"""Faults seeded on purpose: the histories of the default run must find every one of them."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from sqlalchemy.exc import DBAPIError

from tests.model.ground import Ground
from tests.model.machine import Machine
from tests.model.mutants import MUTANTS
from tests.model.test_model import SEEDS, ground, run_histories

__all__ = ["ground"]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_left_out_of_a_statement_is_found(mutant: str, ground: Ground) -> None:
    """Each guard and each CASE is there for a reason that the model knows."""
    Machine.ground = ground
    with MUTANTS[mutant].in_place(ground.engine):
        for number in range(SEEDS):
            try:
                run_histories(number, Phase.generate)
            except (AssertionError, pytest.fail.Exception, DBAPIError):  # a CHECK
                return
    pytest.fail(f"nobody noticed that {mutant}")
