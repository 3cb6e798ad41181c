"""The answer to an outcome never arrives: one run, one word about it, whether it had landed or not."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    JobSettled,
    JobStarted,
    LeaseLost,
    LoopFailed,
    LoopRecovered,
    OutcomeDropped,
    SettleDelayed,
)
from sa_jobqueue.outcomes import Discard, Retry, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.statements.renew import renew
from sa_jobqueue.statements.settle import SETTLING
from sa_jobqueue.states import Verb
from tests.support.proxy import Fate, Proxy, sends
from tests.support.runners import add, row, running, wait_for_row
from tests.support.waiting import PATIENCE, wait_until

RENEW = sends(renew())
HOUR = timedelta(hours=1)
#: So long that no test here can end by a lease that is over.
LONG = {"lease": timedelta(minutes=5), "rescue_interval": HOUR}
LOST = [Fate.LOSE, Fate.LOSE_ANSWER]


def _sends(verb: Verb) -> Callable[[str], bool]:
    return sends(SETTLING[verb][0]())


def _saying(outcome: Any) -> tuple[Registry, Counter[int]]:
    """A registry whose handler counts its runs and says this at the first, and nothing afterwards."""
    jobs, runs = Registry(), Counter[int]()

    @jobs.handler("work")
    def work(ctx: JobContext) -> Any:
        runs[ctx.id] += 1
        return outcome if runs[ctx.id] == 1 else None

    return jobs, runs


def _due_now(engine: Engine) -> None:
    """Nobody need wait for a retry here; and before this, whoever said it can't claim the job again."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE jobqueue_jobs SET run_at = now() WHERE status = 'ready'"))


@pytest.mark.parametrize("fate", LOST)
@pytest.mark.parametrize(
    ("verb", "outcome", "status", "returned"),
    [
        (Verb.COMPLETE, None, "done", 0),
        (Verb.RETRY, Retry(HOUR, "later"), "ready", 0),
        (Verb.SNOOZE, Snooze(HOUR), "ready", 1),
        (Verb.DISCARD, Discard("never"), "dead", 0),
    ],
)
def test_an_outcome_is_told_once(
    engine: Engine, proxy: Proxy, fate: Fate, verb: Verb, outcome: Any, status: str, returned: int
) -> None:
    """Landed or lost on the way: the handler ran once, the row says so once, and one event tells what it says."""
    jobs, runs = _saying(outcome)
    with engine.begin() as connection:
        ids = [add(connection, "work") for _ in range(3)]
    lost = proxy.on(_sends(verb), fate)
    with running(jobs, proxy.url, **LONG) as recorder:
        recorder.wait_for(JobSettled, count=3)
        recorder.wait_for(LoopRecovered)
    assert lost.struck == 1
    assert runs == dict.fromkeys(ids, 1)
    assert sorted((it.job_id, it.verb, it.status) for it in recorder.of(JobSettled)) == [
        (job, verb, status) for job in ids
    ]
    for job in ids:
        it = row(engine, job)
        assert (it.status, it.attempts, it.returned) == (status, 1, returned)
        assert len(it.errors) == (verb is Verb.RETRY)
    assert not recorder.of(OutcomeDropped)
    assert not recorder.of(SettleDelayed)
    assert [failed.loop for failed in recorder.of(LoopFailed)] == ["settle"]


@pytest.mark.parametrize("fate", LOST)
def test_an_abort_is_told_once(engine: Engine, proxy: Proxy, fate: Fate) -> None:
    """A job that was claimed past its expires_at: cancelled, never run."""
    jobs, runs = _saying(None)
    with engine.begin() as connection:
        job = add(connection, "work", expires_at="2020-01-01T00:00:00Z")
    lost = proxy.on(_sends(Verb.ABORT), fate)
    with running(jobs, proxy.url, **LONG) as recorder:
        (settled,) = recorder.wait_for(JobSettled)
    assert lost.struck == 1
    assert (settled.job_id, settled.verb, settled.status) == (job, "abort", "cancelled")
    assert (row(engine, job).status, row(engine, job).reason) == ("cancelled", "expired")
    assert not runs


@pytest.mark.parametrize("fate", LOST)
def test_jobs_claimed_ahead_are_released_once(engine: Engine, proxy: Proxy, fate: Fate) -> None:
    """Given back because the handlers are busy with others: their starts don't count, and each runs once."""
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()
    jobs.handler("short")(lambda: None)

    @jobs.handler("long")
    def long(ctx: JobContext) -> None:
        runs[ctx.id] += 1
        assert gate.wait(PATIENCE)

    with engine.begin() as connection:
        many = "INSERT INTO jobqueue_jobs (kind, priority) SELECT '{}', {} FROM generate_series(1, {})"
        connection.execute(text(many.format("short", 0, 1000)))
        connection.execute(text(many.format("long", 9, 50)))
    lost = proxy.on(_sends(Verb.RELEASE), fate)
    with running(jobs, proxy.url, queues={"default": 2}, **LONG) as recorder:
        lost.wait()
        gate.set()
        wait_until(lambda: sum(it.verb == "complete" for it in recorder.of(JobSettled)) == 1050)
    released = [it for it in recorder.of(JobSettled) if it.verb == "release"]
    assert released
    assert {it.status for it in released} == {"ready"}
    assert not recorder.of(OutcomeDropped)
    assert set(runs.values()) == {1}
    with engine.connect() as connection:
        query = "SELECT status, attempts - returned, count(*) FROM jobqueue_jobs GROUP BY 1, 2"
        assert [tuple(it) for it in connection.execute(text(query))] == [("done", 1, 1050)]


def test_a_retry_that_landed_and_was_claimed_by_another(
    engine: Engine, proxy: Proxy, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as what it was: the job became ready, whoever runs it by the time the answer is known."""
    # The first runner, which does not know yet that the answer is lost, must not be the one that claims it.
    monkeypatch.setattr("sa_jobqueue.runner.pace.SECOND_LOOK", HOUR.total_seconds())
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> Retry | None:
        runs[ctx.id] += 1
        if runs[ctx.id] == 1:
            return Retry(HOUR)
        assert gate.wait(PATIENCE)
        return None

    with engine.begin() as connection:
        job = add(connection, "work")
    proxy.on(_sends(Verb.RETRY), Fate.LOSE_ANSWER)
    held = proxy.on(RENEW, Fate.HOLD)
    with running(jobs, proxy.url, poll_interval=HOUR, **LONG) as first:
        held.wait()  # reconciliation begins with a renewal, and until it ends nothing new is claimed
        _due_now(engine)
        with running(jobs, database_url, **LONG) as second:
            second.wait_for(JobStarted)
            held.release()
            (settled,) = first.wait_for(JobSettled)
            assert row(engine, job).status == "running"
            gate.set()
            second.wait_for(JobSettled)
    assert (settled.verb, settled.status) == ("retry", "ready")
    assert not first.of(OutcomeDropped)
    assert runs == {job: 2}


@pytest.mark.parametrize(("prune", "cause"), [(False, "lost"), (True, "gone")])
def test_an_outcome_that_can_not_be_known_any_more(
    engine: Engine, proxy: Proxy, database_url: str, prune: bool, cause: str
) -> None:
    """Landed, then settled by a later owner, or pruned: nothing is written, and an event says so."""
    jobs, runs = _saying(Retry(HOUR))
    with engine.begin() as connection:
        job = add(connection, "work")
    proxy.on(_sends(Verb.RETRY), Fate.LOSE_ANSWER)
    held = proxy.on(RENEW, Fate.HOLD)
    with running(jobs, proxy.url, poll_interval=HOUR, **LONG) as first:
        held.wait()
        _due_now(engine)
        with running(jobs, database_url, **LONG) as second:
            second.wait_for(JobSettled)
        done = row(engine, job)
        if prune:
            with engine.begin() as connection:
                connection.execute(text("DELETE FROM jobqueue_jobs"))
        held.release()
        (dropped,) = first.wait_for(OutcomeDropped)
        recovered = first.wait_for(LoopRecovered)
    assert (dropped.job_id, dropped.verb, dropped.cause) == (job, "retry", cause)
    assert [it.loop for it in recovered] == ["settle"]
    assert not first.of(JobSettled)
    assert runs == {job: 2}
    if not prune:
        assert row(engine, job) == done


def test_an_outcome_that_never_landed_and_whose_job_was_rescued(
    engine: Engine, proxy: Proxy, database_url: str
) -> None:
    """The lease was over before it could be sent again: the later owner's word stands."""
    jobs, runs = _saying(None)
    with engine.begin() as connection:
        job = add(connection, "work")
    proxy.on(_sends(Verb.COMPLETE), Fate.LOSE)
    held = proxy.on(RENEW, Fate.HOLD)
    with running(jobs, proxy.url, poll_interval=HOUR, **LONG) as first:
        held.wait()
        with engine.begin() as connection:
            connection.execute(text("UPDATE jobqueue_jobs SET lease_until = now() - interval '1 hour'"))
        with running(jobs, database_url, lease=timedelta(milliseconds=900)) as second:
            wait_for_row(engine, job, lambda it: it.status == "ready")
            _due_now(engine)
            second.wait_for(JobSettled)
        done = row(engine, job)
        held.release()
        (dropped,) = first.wait_for(OutcomeDropped)
    assert (dropped.verb, dropped.cause) == ("complete", "lost")
    assert (done.status, done.attempts) == ("done", 2)
    assert row(engine, job) == done
    assert runs == {job: 2}


def test_an_expired_lease_that_nobody_took_is_no_reason_for_a_second_run(
    engine: Engine, proxy: Proxy
) -> None:
    """What is sent again is renewed first."""
    jobs, runs = _saying(None)
    with engine.begin() as connection:
        job = add(connection, "work")
    proxy.on(_sends(Verb.COMPLETE), Fate.LOSE)
    held = proxy.on(RENEW, Fate.HOLD)
    with running(jobs, proxy.url, **LONG) as recorder:
        held.wait()
        with engine.begin() as connection:
            connection.execute(text("UPDATE jobqueue_jobs SET lease_until = now() - interval '1 hour'"))
        held.release()
        recorder.wait_for(JobSettled)
    assert runs == {job: 1}
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 1)


def test_a_row_that_is_locked_when_its_outcome_is_sent_again(engine: Engine, proxy: Proxy) -> None:
    """It waits alone, and its outcome is written when the lock is gone."""
    jobs, runs = _saying(None)
    with engine.begin() as connection:
        job, neighbour = add(connection, "work"), add(connection, "work")
    lost = proxy.on(_sends(Verb.COMPLETE), Fate.LOSE)
    held = proxy.on(RENEW, Fate.HOLD)
    with running(jobs, proxy.url, **LONG) as recorder:
        lost.wait()
        held.wait()
        with engine.begin() as application:
            application.execute(text("SELECT * FROM jobqueue_jobs WHERE id = :id FOR UPDATE"), {"id": job})
            held.release()
            wait_until(lambda: len(recorder.of(SettleDelayed)) >= 2)
            wait_until(lambda: row(engine, neighbour).status == "done")
        recorder.wait_for(JobSettled, count=2)
    assert {(it.job_id, it.cause) for it in recorder.of(SettleDelayed)} == {(job, "busy")}
    assert runs == {job: 1, neighbour: 1}
    assert {row(engine, it).status for it in (job, neighbour)} == {"done"}
    assert not recorder.of(LeaseLost)


def test_nothing_is_claimed_while_outcomes_can_not_be_written(engine: Engine, proxy: Proxy) -> None:
    """Every job that is started then is one more to run twice; it begins as soon as they can."""
    jobs, runs = _saying(None)
    with engine.begin() as connection:
        job = add(connection, "work")
    proxy.on(_sends(Verb.COMPLETE), Fate.LOSE)
    held = proxy.on(RENEW, Fate.HOLD)
    with running(jobs, proxy.url, **LONG) as recorder:
        held.wait()
        # The dispatcher hears of it before the renewal is sent; a claim that was under way then finds no job.
        with engine.begin() as connection:
            late = add(connection, "work")
        assert row(engine, late).status == "ready"
        held.release()
        recorder.wait_for(JobSettled, count=2)
    order = [
        (type(it).__name__, it.job_id) for it in recorder.events if isinstance(it, JobStarted | JobSettled)
    ]
    assert order.index(("JobSettled", job)) < order.index(("JobStarted", late))
    assert runs == {job: 1, late: 1}
