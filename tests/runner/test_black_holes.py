"""A connection that lives and never answers: each loop gives it up, and no job is lost or run twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    JobRescued,
    JobSettled,
    JobStarted,
    LeaseLost,
    LoopFailed,
    LoopRecovered,
    OutcomeDropped,
)
from sa_jobqueue.queries.expired import expired
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner, RunnerSettings
from sa_jobqueue.statements.claim import claim
from sa_jobqueue.statements.renew import renew
from sa_jobqueue.statements.settle import complete
from tests.support.proxy import Fate, Proxy, sends
from tests.support.runners import Recorder, add, row, running, wait_for_row

CLAIM, COMPLETE, RENEW = sends(claim()), sends(complete()), sends(renew())
LEASE = timedelta(seconds=4.5)
GHOST = {
    "status": "running",
    "attempts": 1,
    "leased_by": "ghost",
    "lease_token": "00000000-0000-0000-0000-000000000001",
    "lease_until": "2020-01-01T00:00:00Z",
}


@pytest.fixture(autouse=True)
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the lease, as it is for a lease of 15 s or more."""
    monkeypatch.setattr("sa_jobqueue.runner.settings.SHORTEST_DEADLINE", timedelta(seconds=1))


def _counting() -> tuple[Registry, Counter[int]]:
    jobs, runs = Registry(), Counter[int]()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1

    return jobs, runs


def _came_back(recorder: Recorder, loop: str) -> None:
    """This loop alone had trouble, of this kind, and is over it."""
    recorder.wait_for(LoopRecovered)
    assert {it.loop for it in recorder.of(LoopFailed)} == {loop}
    assert "the server has not answered within 1.5 s" in recorder.of(LoopFailed)[0].error


@pytest.mark.parametrize("fate", [Fate.SWALLOW, Fate.SWALLOW_ANSWER])
@pytest.mark.parametrize(("loop", "pick"), [("dispatch", CLAIM), ("settle", COMPLETE)])
def test_claims_and_outcomes(
    engine: Engine, proxy: Proxy, loop: str, pick: Callable[[str], bool], fate: Fate
) -> None:
    """Swallowed on the way there or back: the job runs once, at the first attempt that counts, and is done."""
    jobs, runs = _counting()
    with engine.begin() as connection:
        job = add(connection, "work")
    hole = proxy.on(pick, fate)
    with running(jobs, proxy.url, lease=LEASE) as recorder:
        hole.wait()
        recorder.wait_for(JobSettled)
        _came_back(recorder, loop)
    done = row(engine, job)
    assert (done.status, done.attempts - done.returned) == ("done", 1)
    assert runs == {job: 1}
    assert len(recorder.of(JobSettled)) == 1
    assert not recorder.of(OutcomeDropped)


@pytest.mark.parametrize("fate", [Fate.SWALLOW, Fate.SWALLOW_ANSWER])
def test_the_keeper_is_back_before_the_lease_is_over(
    engine: Engine, proxy: Proxy, database_url: str, fate: Fate
) -> None:
    """With another runner that rescues: the lease is never past, and the handler runs once."""
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1
        assert gate.wait(60)

    with engine.begin() as connection:
        job = add(connection, "work")
    hole = proxy.on(RENEW, fate)
    with running(jobs, proxy.url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted)
        claimed_until = row(engine, job).lease_until
        with running(jobs, database_url, lease=LEASE) as other:
            hole.wait()
            wait_for_row(engine, job, lambda it: it.lease_until > claimed_until + LEASE, timeout=20)
            gate.set()
            recorder.wait_for(JobSettled)
            _came_back(recorder, "leases")
    assert runs == {job: 1}
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 1)
    assert not recorder.of(LeaseLost)
    assert not other.of(JobRescued)


def test_maintenance(engine: Engine, proxy: Proxy) -> None:
    """The rescue of a lost runner's job comes later, and comes."""
    jobs, runs = _counting()
    with engine.begin() as connection:
        job = add(connection, "work", **GHOST)
    hole = proxy.on(sends(expired()), Fate.SWALLOW)
    with running(jobs, proxy.url, lease=LEASE) as recorder:
        hole.wait()
        recorder.wait_for(JobRescued)
        _came_back(recorder, "maintenance")
        with engine.begin() as connection:
            connection.execute(text("UPDATE jobqueue_jobs SET run_at = now()"))
        recorder.wait_for(JobSettled)
    assert runs == {job: 1}
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 2)


def test_everything_at_once(engine: Engine, proxy: Proxy) -> None:
    """All connections fall silent, new ones too, while handlers end: each loop comes back, and nothing ran twice."""
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1
        assert gate.wait(60)

    with engine.begin() as connection:
        ids = [add(connection, "work") for _ in range(4)]
    with running(jobs, proxy.url, lease=timedelta(seconds=9), queues={"default": 4}) as recorder:
        recorder.wait_for(JobStarted, count=4)
        with proxy.mute():
            gate.set()
            with engine.begin() as connection:
                ids.append(add(connection, "work"))
            recorder.wait_for(LoopFailed, count=3)
        recorder.wait_for(JobSettled, count=5, timeout=30)
    assert runs == dict.fromkeys(ids, 1)
    assert {(row(engine, job).status, row(engine, job).attempts) for job in ids} == {("done", 1)}


def test_a_start_is_bounded_too(proxy: Proxy) -> None:
    """Nothing hangs before there is a loop: the start says that the database can't be reached."""
    jobs, _ = _counting()
    proxy.on(lambda text: "obj_description" in text, Fate.SWALLOW)
    with pytest.raises(OperationalError, match="has not answered within"):
        Runner(jobs, proxy.url, RunnerSettings(lease=LEASE)).start()
