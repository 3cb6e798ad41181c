"""The answer to a renewal or a rescue never arrives: leases hold, and nothing is judged by what is not known."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobSettled, JobStarted, LeaseLost, LoopFailed, LoopRecovered
from sa_jobqueue.registry import Registry
from sa_jobqueue.statements.renew import renew
from sa_jobqueue.statements.rescue import rescue
from tests.support.proxy import Fate, Proxy, sends
from tests.support.runners import add, row, running, wait_for_row

RENEW, RESCUE = sends(renew()), sends(rescue())
LEASE = timedelta(seconds=3)


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_ANSWER])
def test_a_lost_renewal_loses_no_lease(engine: Engine, proxy: Proxy, database_url: str, fate: Fate) -> None:
    """Twice in a row, with another runner that rescues: the handler is told nothing and runs once."""
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1
        assert gate.wait(30)
        assert not ctx.lost

    with engine.begin() as connection:
        job = add(connection, "work")
    lost = proxy.on(RENEW, fate, times=2)
    with running(jobs, proxy.url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted)
        claimed_until = row(engine, job).lease_until
        with running(jobs, database_url, lease=LEASE):
            lost.wait(2)
            wait_for_row(engine, job, lambda it: it.lease_until > claimed_until + LEASE)
            gate.set()
            recorder.wait_for(JobSettled)
    assert [it.loop for it in recorder.of(LoopFailed)] == ["leases"]
    assert [it.loop for it in recorder.of(LoopRecovered)] == ["leases"]
    assert not recorder.of(LeaseLost)
    assert runs == {job: 1}
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 1)


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_ANSWER])
def test_a_lost_rescue_is_made_once(engine: Engine, proxy: Proxy, fate: Fate) -> None:
    """It has landed or it is made again: one error in the row, one attempt that is lost, one run."""
    jobs, runs = Registry(), Counter[int]()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1

    with engine.begin() as connection:
        job = add(
            connection,
            "work",
            status="running",
            attempts=1,
            leased_by="ghost",
            lease_token="00000000-0000-0000-0000-000000000001",
            lease_until="2020-01-01T00:00:00Z",
        )
    lost = proxy.on(RESCUE, fate)
    with running(jobs, proxy.url, lease=timedelta(seconds=1.2)) as recorder:
        lost.wait()
        back = wait_for_row(engine, job, lambda it: it.status == "ready")
        with engine.begin() as connection:
            connection.execute(text("UPDATE jobqueue_jobs SET run_at = now()"))
        recorder.wait_for(JobSettled)
        recorder.wait_for(LoopRecovered)
    assert (back.attempts, [it["verb"] for it in back.errors]) == (1, ["rescue"])
    assert [it.loop for it in recorder.of(LoopFailed)] == ["maintenance"]
    assert runs == {job: 1}
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 2)
