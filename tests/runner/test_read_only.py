"""A database that takes no writes for a while, as in a failover: what was connected meanwhile must not stay that way.

A session keeps the setting that it began with, long after the database has another one: only another session helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from psycopg import sql
from sqlalchemy import Engine

from sa_jobqueue.events import JobSettled, LoopFailed, WakeUpFailed
from sa_jobqueue.loop import LONGEST_BACKOFF
from sa_jobqueue.registry import Registry
from sa_jobqueue.testing.server import connect
from tests.support.effects import Completing, create_effects, effects
from tests.support.runners import add, running, wait_for_row
from tests.support.waiting import wait_until


@contextmanager
def _read_only(url: str) -> Iterator[None]:
    """New sessions of the database are read-only; nobody's is ended, now or later."""
    with connect(url) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        try:
            yield
        finally:
            connection.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))


def test_loops_that_were_connected_meanwhile_work_again(engine: Engine, database_url: str) -> None:
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    with engine.begin() as connection:
        job = add(connection, "work")
    with ExitStack() as runner:
        with _read_only(database_url):
            recorder = runner.enter_context(running(jobs, database_url))
            wait_until(lambda: "dispatch" in {it.loop for it in recorder.of(LoopFailed)})
            assert "ReadOnlySqlTransaction" in recorder.of(LoopFailed)[0].error
        wait_for_row(engine, job, lambda it: it.status == "done")


@pytest.mark.parametrize("where", ["thread", "asyncio"])
def test_blocks_that_were_connected_meanwhile_work_again(
    engine: Engine, database_url: str, where: str
) -> None:
    """The runner's loops have older sessions and go on; the handlers' pool has none that is worth keeping."""
    work = Completing(where)
    work.jobs.handler("warm")(lambda: None)
    with engine.begin() as connection:
        create_effects(connection)
        add(connection, "warm")
    with running(work.jobs, database_url) as recorder, engine.connect() as connection:
        recorder.wait_for(JobSettled)
        with _read_only(database_url):
            job = add(connection, "work", max_attempts=1000)
            connection.commit()
            wait_until(lambda: len(work.errors) >= 2, what="failures of the block")
        wait_for_row(engine, job, lambda it: it.status == "done")
    assert {"ReadOnlySqlTransaction" in str(error) for error in work.errors} == {True}
    assert effects(engine) == {job: 1}


@pytest.mark.parametrize("sqlstate", ["25006", "53100"])
def test_a_runner_that_could_not_say_that_it_waits_says_it_soon(
    engine: Engine, database_url: str, sqlstate: str
) -> None:
    """That nobody could write then is no missing right, which is told, and tried again after a minute."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE 'no' USING ERRCODE = '{sqlstate}'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON jobqueue_idle FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    with running(jobs, database_url) as recorder:
        wait_until(lambda: "dispatch" in {it.loop for it in recorder.of(LoopFailed)})
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TRIGGER refuse ON jobqueue_idle")
        wait_until(lambda: _waiting(engine), timeout=LONGEST_BACKOFF * 4, what="the flag")
        assert not recorder.of(WakeUpFailed)


def _waiting(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM jobqueue_idle").scalar_one())
