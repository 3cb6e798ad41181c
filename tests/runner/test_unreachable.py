"""The database can't be reached, or refuses for a moment, just when handlers end: the outcome is written all the same."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    JobRescued,
    JobSettled,
    JobStarted,
    LeaseLost,
    LoopFailed,
    OutcomeDropped,
    SettleDelayed,
)
from sa_jobqueue.outcomes import Retry
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from tests.support.proxy import Proxy
from tests.support.runners import add, row, running
from tests.support.waiting import wait_until

AT_ONCE = fixed(timedelta(0))


class _Gated:
    """Jobs that end together, when the gate opens; their second run ends at once."""

    def __init__(self, outcome: Any = None) -> None:
        self.runs: Counter[int] = Counter()
        self.gate = threading.Event()
        self.registry = Registry()

        @self.registry.handler("work", retry=AT_ONCE)
        def work(ctx: JobContext) -> Any:
            self.runs[ctx.id] += 1
            if self.runs[ctx.id] > 1:
                return None
            assert self.gate.wait(60)
            return outcome


def _tried(proxy: Proxy, times: int) -> bool:
    return proxy.turned_away >= times


@pytest.mark.parametrize(("outcome", "status"), [(None, "done"), (Retry(timedelta(hours=1)), "ready")])
def test_an_outage_within_the_lease(
    engine: Engine, proxy: Proxy, database_url: str, outcome: Any, status: str
) -> None:
    """Fifty handlers end in the middle of it, another runner rescues: one run each, and nothing new was begun."""
    work = _Gated(outcome)
    with engine.begin() as connection:
        ids = [add(connection, "work") for _ in range(50)]
    with running(work.registry, proxy.url, lease=timedelta(seconds=15), queues={"default": 60}) as recorder:
        recorder.wait_for(JobStarted, count=50)
        with running(
            work.registry, database_url, lease=timedelta(seconds=15), queues={"other": 1, "default": 1}
        ) as other:
            with proxy.unreachable():
                work.gate.set()
                wait_until(lambda: "settle" in {it.loop for it in recorder.of(LoopFailed)})
                before = proxy.turned_away
                wait_until(lambda: _tried(proxy, before + 5), what="several tries")
                assert not recorder.of(JobSettled)
            recorder.wait_for(JobSettled, count=50, timeout=20)
    assert work.runs == dict.fromkeys(ids, 1)
    assert {(row(engine, job).status, row(engine, job).attempts) for job in ids} == {(status, 1)}
    assert not [*recorder.of(OutcomeDropped), *recorder.of(LeaseLost), *other.of(JobRescued)]
    assert len(recorder.of(JobSettled)) == 50


def test_an_outage_longer_than_the_lease(engine: Engine, proxy: Proxy, database_url: str) -> None:
    """Another runner takes the job: the first one's word comes too late and is thrown away."""
    work = _Gated()
    with engine.begin() as connection:
        job = add(connection, "work")
    short = timedelta(seconds=1)
    with running(work.registry, proxy.url, lease=short) as recorder:
        recorder.wait_for(JobStarted)
        with proxy.unreachable():
            work.gate.set()
            with running(work.registry, database_url, lease=short) as other:
                other.wait_for(JobRescued)
                (settled,) = other.wait_for(JobSettled)
            done = row(engine, job)
        wait_until(lambda: [*recorder.of(OutcomeDropped), *recorder.of(LeaseLost)])
    assert work.runs == {job: 2}
    assert (settled.verb, settled.attempt) == ("complete", 2)
    assert not recorder.of(JobSettled)
    assert row(engine, job) == done
    assert (done.status, done.attempts) == ("done", 2)


@pytest.mark.parametrize(("outcome", "status"), [(None, "done"), (Retry(timedelta(hours=1)), "ready")])
@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_transaction_that_the_server_breaks_off(
    engine: Engine, database_url: str, outcome: Any, status: str, sqlstate: str
) -> None:
    """A serialization failure or a deadlock, twice: tried again as it is, and one run."""
    work = _Gated(outcome)
    work.gate.set()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE tries")  # counts what is rolled back as well
        connection.exec_driver_sql(
            "CREATE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF old.status = 'running' AND new.status <> 'running' AND nextval('tries') <= 2"
            f" THEN RAISE 'broken off' USING ERRCODE = '{sqlstate}'; END IF; RETURN new; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER break_off BEFORE UPDATE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION break_off()"
        )
        job = add(connection, "work")
    with running(work.registry, database_url, lease=timedelta(minutes=5)) as recorder:
        (settled,) = recorder.wait_for(JobSettled)
    assert work.runs == {job: 1}
    assert (settled.status, settled.fault) == (status, None)
    assert (row(engine, job).status, row(engine, job).attempts) == (status, 1)
    assert {sqlstate in (it.fault or "") for it in recorder.of(SettleDelayed)} == {True}
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT last_value FROM tries")) == 3
