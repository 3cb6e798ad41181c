"""Faults seeded on purpose: the histories of the default run must find every one of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.statements import cancel
from tests.model.corners import CORNERS
from tests.model.ground import Ground
from tests.model.machine import Machine
from tests.model.mutants import CODE, STATEMENTS
from tests.model.test_model import SEEDS, ground, run_corner, run_histories

__all__ = ["ground"]
pytestmark = pytest.mark.once


class FoundError(BaseException):
    """Nothing that Hypothesis would look into."""


class Hasty(Machine):
    """Ends everything at the first difference, without running the history again."""

    def act(self, step: tuple[str, dict[str, Any]]) -> None:
        try:
            super().act(step)
        except (AssertionError, pytest.fail.Exception, DBAPIError) as error:  # the last of a CHECK
            raise FoundError from error


def is_found(ground: Ground) -> bool:
    """Whether any history of the default run comes upon a difference."""
    Hasty.ground = ground
    try:
        for name in CORNERS:
            run_corner(Hasty, name)
        for number in range(SEEDS):
            run_histories(Hasty, number, Phase.generate)
    except FoundError:
        return True
    return False


@pytest.mark.parametrize("mutant", STATEMENTS)
def test_a_rule_left_out_of_a_statement_is_found(mutant: str, ground: Ground) -> None:
    """Each guard and each CASE is there for a reason that the model knows."""
    with STATEMENTS[mutant].in_place(ground.engine):
        assert is_found(ground), f"nobody noticed that {mutant}"


@pytest.mark.parametrize("mutant", CODE)
def test_a_wrong_word_is_found(mutant: str, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is what is wrong about an answer, and a wrong line in the table of transitions."""
    monkeypatch.setattr(*CODE[mutant])
    cancel.cancel.cache_clear()  # built from the table
    try:
        assert is_found(ground), f"nobody noticed that {mutant}"
    finally:
        cancel.cancel.cache_clear()
