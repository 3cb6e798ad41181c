"""Random histories on the store and on the model: every column of every row is the same after every step.

More of them, or one seed alone: `tests/support/seeds.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sa_jobqueue.testing import PostgresServer
from tests.model.clock import clocked_database
from tests.model.corners import CORNERS
from tests.model.ground import Ground
from tests.model.machine import Machine
from tests.support.seeds import ALONE, again, seeds

#: After its first ten histories Hypothesis goes over to variations of them: many seeds see more than one.
SEEDS, HISTORIES, STEPS = 20, 10, 80
#: What the histories are there for: the verbs, and every word of the reconciliation.
REACHED = {
    *("enqueue", "claim", "release_claim", "prune"),
    *(f"{verb}: landed" for verb in ("renew", "report", "complete", "retry", "snooze", "discard", "release")),
    *("abort: landed", "fence: landed", "fence: expired", "fence: lost", "fence: gone"),
    *("rescue: ready", "rescue: dead", "rescue: cancelled"),
    *(f"{verb}: {word}" for verb in ("cancel", "redrive", "reschedule") for word in ("landed", "left")),
    *("busy", "expired", "lost", "gone", "unknown", "complete: done", "retry: done"),
}


@pytest.fixture(scope="module")
def ground(server: PostgresServer) -> Iterator[Ground]:
    """A database with a clock of its own, and the connections to it."""
    with clocked_database(server) as engine:
        ground = Ground(engine)
        yield ground
        ground.close()


def run_histories(machine: type[Machine], number: int, *phases: Phase) -> None:
    """Those of one seed, which are the same each time."""
    seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=STEPS,
            phases=phases,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_corner(machine: type[Machine], name: str) -> None:
    """One that is written down."""
    history = machine()
    try:
        for step in CORNERS[name]:
            history.act(step)
    finally:
        history.teardown()


@pytest.mark.parametrize("name", CORNERS)
def test_a_corner(name: str, ground: Ground) -> None:
    """What random histories come to seldom."""
    Machine.ground = ground
    run_corner(Machine, name)


def test_the_store_does_what_the_table_of_verbs_says(ground: Ground) -> None:
    """With stale tokens, lost and late answers, locked rows, and time: a failure prints its history as a program."""
    Machine.ground = ground
    for number in seeds("model", SEEDS):
        try:
            run_histories(Machine, number, Phase.generate, Phase.shrink)
        except BaseException as error:
            error.add_note(again("model", number))
            raise
    if not ALONE:
        assert set(ground.reached) >= REACHED, "the histories don't reach what they are there for"
