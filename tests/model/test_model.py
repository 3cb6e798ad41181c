"""Random histories on the store and on the model: every column of every row is the same after every step."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sa_jobqueue.testing import PostgresServer
from tests.model.clock import clocked_database
from tests.model.machine import Ground, Machine

#: SA_JOBQUEUE_SIMULATION=20 runs twenty times as many; SA_JOBQUEUE_SEED=model:<seed> one seed alone.
FACTOR = int(os.environ.get("SA_JOBQUEUE_SIMULATION", "1"))
#: After its first ten histories Hypothesis goes over to variations of those: many seeds see more than one with as many.
SEEDS, HISTORIES, STEPS = 10, 10, 80


@pytest.fixture(scope="module")
def ground(server: PostgresServer) -> Iterator[Ground]:
    """A database with a clock of its own, and the connections to it."""
    with clocked_database(server) as engine:
        ground = Ground(engine)
        yield ground
        ground.close()


def run_histories(number: int, *phases: Phase) -> None:
    """Those of one seed."""
    seed(number)(Machine)
    run_state_machine_as_test(
        Machine,
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


def test_the_store_does_what_the_table_of_verbs_says(ground: Ground) -> None:
    """Stale tokens, lost and late answers, locked rows, expiry: a failure prints its history as a program."""
    Machine.ground = ground
    for number in range(SEEDS * FACTOR):
        run_histories(number, Phase.generate, Phase.shrink)
    print(sorted(ground.reached.items()))
