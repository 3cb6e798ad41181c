"""Random histories on the store and on the model: every column of every row is the same after every step."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sa_jobqueue.testing import PostgresServer
from tests.model.clock import clocked_database
from tests.model.machine import Ground, Machine

#: SA_JOBQUEUE_SIMULATION=20 runs twenty times as many, of another kind each time.
FACTOR = int(os.environ.get("SA_JOBQUEUE_SIMULATION", "1"))
EXAMPLES, STEPS = 150, 50


@pytest.fixture(scope="module")
def ground(server: PostgresServer) -> Iterator[Ground]:
    """A database with a clock of its own, and the connections to it."""
    with clocked_database(server) as engine:
        ground = Ground(engine)
        yield ground
        ground.close()


def histories(*, phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink)) -> settings:
    return settings(
        max_examples=EXAMPLES * FACTOR,
        stateful_step_count=STEPS,
        derandomize=FACTOR == 1,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )


def test_the_store_does_what_the_table_of_verbs_says(ground: Ground) -> None:
    """Stale tokens, lost and late answers, locked rows, expiry: a failure prints its history as a program."""
    Machine.ground = ground
    run_state_machine_as_test(Machine, settings=histories())
    print(sorted(ground.reached.items()))
