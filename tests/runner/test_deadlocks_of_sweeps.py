"""Whatever sweeps over the table beside the runners' work: prune, postpone, people, and the operator's command."""

from __future__ import annotations

import random
from contextlib import ExitStack
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from sa_jobqueue.admin import OperatorResult, cancel, prune, redrive
from sa_jobqueue.cli.connect import Database
from sa_jobqueue.cli.jobs.acting import act
from sa_jobqueue.cli.jobs.choosing import choose
from sa_jobqueue.events import JobsPruned
from sa_jobqueue.retention import Retention
from sa_jobqueue.states import TERMINAL, JobStatus
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing.server import connect
from sa_jobqueue.views import JobFilter
from tests.runner.test_deadlocks import (
    JOBS,
    NOW,
    ROUNDS,
    a_person,
    at_once,
    broken_deadlocks,
    deadlocks,
    fill,
    impatient,
    registry,
    troubles,
)
from tests.support.runners import drain, running

READY = text("SELECT id FROM jobqueue_jobs WHERE status = 'ready' ORDER BY random() LIMIT 300")
LEFT = text("SELECT DISTINCT status FROM jobqueue_jobs WHERE status IN ('running', 'ready')")


def a_pruner(engine: Engine, lost: list[str]) -> None:
    for _ in range(ROUNDS):
        for status in TERMINAL:
            with broken_deadlocks(lost), engine.begin() as connection:
                prune(connection, status=status, older_than=NOW, limit=50)


def a_postponer(engine: Engine) -> None:
    store = Store(engine, name="postpones")
    for _ in range(ROUNDS * 4):
        with engine.connect() as connection:
            ids = list(connection.execute(READY).scalars())
        store.postpone(ids, shortest=timedelta(milliseconds=1), longest=timedelta(milliseconds=10))
    store.close()


def an_operator(url: str, seed: int) -> None:
    """What `jobs cancel` and `jobs redrive` do, by a filter and by ids in any order."""
    dice = random.Random(seed)
    with Database(url, None).in_use() as database:
        for _ in range(ROUNDS):
            wanted = JobFilter(statuses=(JobStatus.DEAD, JobStatus.CANCELLED))
            act(database, choose(database, (), wanted), redrive, done="ready again", as_json=False)
            ids = tuple(dice.randint(1, JOBS) for _ in range(200))
            act(database, choose(database, ids, None), cancel, done="cancelled", as_json=False)


@pytest.mark.slow
def test_sweeps_deadlock_with_nobody(engine: Engine, database_url: str) -> None:
    """They take what is free, or wait in the order of ids: none is ever broken by the server, and no loop fails."""
    with connect(database_url) as connection:
        database = make_url(database_url).database
        connection.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '10ms'".encode())
    unpooled = create_engine(engine.url, poolclass=NullPool)
    answered: list[OperatorResult] = []
    lost: list[str] = []
    fill(unpooled)
    settings = {
        "lease": timedelta(seconds=1),
        "rescue_interval": timedelta(milliseconds=20),
        "prune_interval": timedelta(milliseconds=20),
        "retention": Retention(done=NOW, cancelled=NOW, dead=NOW),
        "queues": {"default": 4},
    }
    with ExitStack() as stack:
        recorders = [
            stack.enter_context(running(registry(), impatient(database_url), **settings)) for _ in range(2)
        ]
        at_once(
            partial(a_person, unpooled, 1, JOBS, answered, lost),
            *[partial(a_pruner, unpooled, lost)] * 2,
            *[partial(a_postponer, unpooled)] * 2,
            partial(an_operator, database_url, 2),
            partial(an_operator, database_url, 3),
        )
    assert (deadlocks(database_url), lost) == (0, [])
    assert troubles(recorders) == []
    assert sum(event.count for recorder in recorders for event in recorder.of(JobsPruned)) > 0
    with unpooled.begin() as connection:
        connection.execute(text("UPDATE jobqueue_jobs SET run_at = now() WHERE status = 'ready'"))
    drain(registry(), database_url)
    with unpooled.connect() as connection:
        assert connection.execute(LEFT).all() == []
