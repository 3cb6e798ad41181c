"""The answer to a claim, or to its release, never arrives: whatever was taken is given back, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobRescued, JobSettled, JobStarted, LoopFailed, LoopRecovered
from sa_jobqueue.registry import Registry
from sa_jobqueue.statements.claim import claim
from sa_jobqueue.statements.settle import release_claim
from tests.support.proxy import Fate, Proxy, sends
from tests.support.runners import add, drain, row, running, wait_for_row

CLAIM, RELEASE = sends(claim()), sends(release_claim())
#: So long that no test here can end by a lease that is over.
LONG = {"lease": timedelta(minutes=5), "rescue_interval": timedelta(hours=1)}


def _counting() -> tuple[Registry, Counter[int]]:
    jobs, runs = Registry(), Counter[int]()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1

    return jobs, runs


@pytest.mark.parametrize(
    ("fate", "starts", "given_back"), [(Fate.LOSE, 1, 0), (Fate.LOSE_ANSWER, 2, 1)], ids=lambda it: str(it)
)
def test_a_lost_claim_costs_no_attempt_and_no_lease(
    engine: Engine, proxy: Proxy, fate: Fate, starts: int, given_back: int
) -> None:
    """Before it landed or after: the jobs run soon, once, in their first attempt that counts."""
    jobs, runs = _counting()
    with engine.begin() as connection:
        ids = [add(connection, "work") for _ in range(3)]
    proxy.on(CLAIM, fate)
    with running(jobs, proxy.url, **LONG) as recorder:
        recorder.wait_for(JobSettled, count=3)
        recorder.wait_for(LoopRecovered)
    assert runs == dict.fromkeys(ids, 1)
    assert {(it.status, it.attempts, it.returned) for it in (row(engine, job) for job in ids)} == {
        ("done", starts, given_back)
    }
    assert {started.attempt for started in recorder.of(JobStarted)} == {1}
    assert [failed.loop for failed in recorder.of(LoopFailed)] == ["dispatch"]


def test_a_prepared_claim_is_no_other(engine: Engine, proxy: Proxy) -> None:
    """After some polls the claim goes by its name alone; its loss is the same."""
    jobs, runs = _counting()
    ids: list[int] = []

    def first_with_work(text: str) -> bool:
        """Puts the job there just before a claim goes out."""
        if not CLAIM(text) or ids:
            return False
        with engine.begin() as connection:
            ids.append(add(connection, "work"))
        return True

    with running(jobs, proxy.url, **LONG) as recorder:
        proxy.wait_for(CLAIM, count=8)
        lost = proxy.on(first_with_work, Fate.LOSE_ANSWER)
        recorder.wait_for(JobSettled)
    (job,) = ids
    assert lost.struck == 1
    assert runs == {job: 1}
    assert (row(engine, job).attempts, row(engine, job).returned) == (2, 1)


def test_a_lost_release_is_sent_again(engine: Engine, proxy: Proxy) -> None:
    """Its answer is as uncertain as the claim's, and a second release finds nothing to do."""
    jobs, runs = _counting()
    with engine.begin() as connection:
        job = add(connection, "work")
    proxy.on(CLAIM, Fate.LOSE_ANSWER)
    releases = [proxy.on(RELEASE, Fate.LOSE), proxy.on(RELEASE, Fate.LOSE_ANSWER)]
    with running(jobs, proxy.url, **LONG) as recorder:
        recorder.wait_for(JobSettled)
    assert [rule.struck for rule in releases] == [1, 1]
    assert runs == {job: 1}
    assert (row(engine, job).status, row(engine, job).attempts, row(engine, job).returned) == ("done", 2, 1)


def test_a_job_whose_claim_always_breaks_the_connection_comes_to_rest(engine: Engine, proxy: Proxy) -> None:
    """It never starts, and is dead in the end as if it had; what was claimed with it runs."""
    jobs, runs = _counting()
    with engine.begin() as connection:
        bad = add(connection, "work", max_attempts=2)
        neighbours = [add(connection, "work") for _ in range(3)]
    broken = proxy.on(
        lambda text: CLAIM(text) and row(engine, bad).status == "ready", Fate.LOSE_ANSWER, times=None
    )
    with running(jobs, proxy.url, **LONG) as recorder:
        recorder.wait_for(JobSettled, count=len(neighbours))
    dead = row(engine, bad)
    assert (dead.status, dead.reason, dead.attempts, dead.returned) == ("dead", "exhausted", 4, 2)
    assert broken.struck == 4
    assert runs == dict.fromkeys(neighbours, 1)


def test_a_claim_that_lands_after_its_release(engine: Engine, proxy: Proxy, database_url: str) -> None:
    """The release finds nothing and is repeated: what lands late is given back before its lease is over."""
    jobs, runs = _counting()
    late = proxy.on(CLAIM, Fate.LAND_LATE)
    hour = timedelta(hours=1)  # one look for work, so that nobody else takes the job
    with running(
        jobs, proxy.url, lease=timedelta(seconds=4.5), poll_interval=hour, rescue_interval=hour, listen=False
    ) as recorder:
        proxy.wait_for(RELEASE)
        proxy.wait_for(CLAIM, count=2)
        with engine.begin() as connection:
            job = add(connection, "work")
        late.release()
        taken = row(engine, job)
        back = wait_for_row(engine, job, lambda it: it.status == "ready")
    assert taken.status == "running"
    assert back.settled_token == taken.lease_token
    assert back.updated_at < taken.lease_until
    assert (back.attempts, back.returned) == (1, 1)
    assert not recorder.of(JobStarted)
    assert not recorder.of(JobRescued)
    assert [event.attempt for event in drain(jobs, database_url).of(JobSettled)] == [1]
    assert runs == {job: 1}
