"""Runner processes that die around the COMMIT of a completion: the effects of a job are there once, and so is its end."""

from __future__ import annotations

import signal

from sqlalchemy import Engine

from tests.support.effects import create_effects, effects
from tests.support.runners import add, process, row, wait_for_row

APP = "tests.apps.completes:jobs"
ONE_BY_ONE = ("--queues", "default:1")


def test_a_process_that_dies_around_its_commit(engine: Engine, database_url: str) -> None:
    """Before the COMMIT nothing is there and the job is run again; after it all is there and nobody runs it."""
    moments = ["before", "fenced", "after"]
    with engine.begin() as connection:
        create_effects(connection)
        before, fenced, after = (
            add(connection, "work", f'{{"moment": "{moment}"}}', priority=place)
            for place, moment in enumerate(moments)
        )
    for _ in moments:
        with process(APP, database_url, *ONE_BY_ONE) as doomed:
            assert doomed.wait() == -signal.SIGKILL
    assert row(engine, after).status == "done"
    with process(APP, database_url, *ONE_BY_ONE):
        for job in (before, fenced):
            wait_for_row(engine, job, lambda it: it.status == "done")
    assert [row(engine, job).attempts for job in (before, fenced, after)] == [2, 2, 1]
    assert effects(engine) == {before: 1, fenced: 1, after: 1}
