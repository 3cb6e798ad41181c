"""Rows that the database lets nobody claim: a warning, and neither a standstill nor a burst without an end."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine

from sa_jobqueue.events import JobSettled, LoopFailed, RowRefused, RunnerStopped
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner
from sa_jobqueue.statements.claim import claim
from tests.support.jobs import refuse
from tests.support.proxy import Proxy, sends
from tests.support.runners import Recorder, add, drain, row, running, settings


def _jobs() -> Registry:
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    return jobs


def test_a_burst_ends_with_nothing_left_but_a_refused_row(engine: Engine, database_url: str) -> None:
    """Its neighbours are done, the row is as it was, and one event says why."""
    with engine.begin() as connection:
        refused, *others = [add(connection, "work") for _ in range(3)]
    refuse(engine, refused, "RAISE 'no' USING ERRCODE = 'JQ001'")
    recorder = drain(_jobs(), database_url)
    assert [(it.job_id, it.verb, it.fault) for it in recorder.of(RowRefused)] == [
        (refused, "claim", "DatabaseError, SQLSTATE JQ001")
    ]
    assert {it.job_id for it in recorder.of(JobSettled)} == set(others)
    assert (row(engine, refused).status, row(engine, refused).attempts) == ("ready", 0)
    assert not recorder.of(LoopFailed)


def test_a_refused_row_is_told_once_and_delays_nobody(engine: Engine, proxy: Proxy) -> None:
    """The loop works: it looks at its own pace, and what comes later is claimed at once."""
    with engine.begin() as connection:
        refused = add(connection, "work")
    refuse(engine, refused, "RAISE 'no'")
    with running(_jobs(), proxy.url, poll_interval=timedelta(milliseconds=20)) as recorder:
        proxy.wait_for(sends(claim()), count=20)
        with engine.begin() as connection:
            late = add(connection, "work")
        (settled,) = recorder.wait_for(JobSettled)
    assert settled.job_id == late
    assert len(recorder.of(RowRefused)) == 1
    assert not recorder.of(LoopFailed)


def test_a_burst_that_may_claim_nothing_ends_with_a_failure(engine: Engine, database_url: str) -> None:
    """A right is missing: no job is at fault, and waiting would change nothing."""
    with engine.begin() as connection:
        job = add(connection, "work")
        connection.exec_driver_sql(
            "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'nobody' USING ERRCODE = '42501'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER forbid BEFORE UPDATE ON jobqueue_jobs FOR EACH STATEMENT EXECUTE FUNCTION forbid()"
        )
    recorder = Recorder()
    runner = Runner(_jobs(), database_url, settings(burst=True), subscribers=[recorder])
    assert runner.run(handle_signals=False) == 1
    assert [it.exit_code for it in recorder.of(RunnerStopped)] == [1]
    assert [(it.loop, it.retry_in) for it in recorder.of(LoopFailed)][-1] == ("dispatch", None)
    assert "nobody" in recorder.of(LoopFailed)[-1].error
    assert not [it for it in recorder.of(RowRefused) if it.job_id != job]
    assert row(engine, job).status == "ready"
