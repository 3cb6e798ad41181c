"""Handlers that complete their jobs in transactions of their own: done with their effects, once, whatever they do then."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue import Snooze, enqueue
from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.events import (
    CancelRequested,
    CompletionInDoubt,
    JobSettled,
    LeaseLost,
    OutcomeDropped,
)
from sa_jobqueue.registry import Registry
from sa_jobqueue.statements.renew import renew
from sa_jobqueue.statements.settle import SETTLING
from sa_jobqueue.states import JobStatus, Verb
from tests.support.effects import AT_ONCE, LONG, Completing, create_effects, effects
from tests.support.proxy import Proxy, sends
from tests.support.runners import Recorder, add, drain, row, running
from tests.support.waiting import PATIENCE, wait_until

TIMEOUT = timedelta(milliseconds=200)
SETTLE = [sends(statement()) for statement, _ in SETTLING.values()]


def _jobs(engine: Engine, count: int = 1, **columns: Any) -> list[int]:
    with engine.begin() as connection:
        create_effects(connection)
        return [add(connection, "work", **columns) for _ in range(count)]


def _settled(recorder: Recorder) -> list[tuple[int, Verb, JobStatus]]:
    return sorted((it.job_id, it.verb, it.status) for it in recorder.of(JobSettled))


def _expire(engine: Engine, job: int) -> None:
    """Its lease passes, and somebody else has the job."""
    with engine.begin() as connection:
        taken = "UPDATE jobqueue_jobs SET lease_token = gen_random_uuid() WHERE id = :id"
        connection.execute(text(taken), {"id": job})


def test_a_job_is_done_with_its_effects_and_no_other_write(engine: Engine, proxy: Proxy, where: str) -> None:
    """One transaction; the runner neither renews nor settles, and tells it as any other end of a job."""
    ids = _jobs(engine, 3)
    work = Completing(where)
    recorder = drain(work.jobs, proxy.url, **LONG)
    assert _settled(recorder) == [(job, Verb.COMPLETE, JobStatus.DONE) for job in ids]
    assert all(it.duration is not None for it in recorder.of(JobSettled))
    assert effects(engine) == work.runs == dict.fromkeys(ids, 1)
    assert {row(engine, job).status for job in ids} == {"done"}
    assert not any(proxy.count(settle) for settle in SETTLE)
    for quiet in (OutcomeDropped, CompletionInDoubt, LeaseLost):
        assert not recorder.of(quiet)


def test_follow_up_jobs_come_with_the_completion(engine: Engine, database_url: str) -> None:
    """Enqueued in the same session: they exist once the job is done, and not when it isn't."""
    (job,) = _jobs(engine)
    jobs, followed = Registry(), list[int]()

    @jobs.handler("work", retry=AT_ONCE)
    def work(ctx: JobContext) -> None:
        with ctx.complete() as session:
            session.add(enqueue("follow", {"number": ctx.attempt}))
            session.flush()
            if ctx.attempt == 1:
                raise ValueError("not yet")

    jobs.handler("follow")(lambda number: followed.append(number))
    drain(jobs, database_url, **LONG)
    assert followed == [2]
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 2)
    with engine.connect() as connection:
        follow_ups = "SELECT count(*) FROM jobqueue_jobs WHERE kind = 'follow'"
        assert connection.execute(text(follow_ups)).scalar_one() == 1


def test_a_lease_that_is_lost_before_the_commit_writes_nothing(
    engine: Engine, database_url: str, where: str
) -> None:
    """The fence finds the job another's: not even the handler's own rows are there."""
    (job,) = _jobs(engine)
    work = Completing(where, inside=lambda ctx: _expire(engine, ctx.id))
    with running(work.jobs, database_url, **LONG) as recorder:
        (dropped,) = recorder.wait_for(OutcomeDropped)
    assert (dropped.job_id, dropped.cause) == (job, "lost")
    assert [type(error) for error in work.errors] == [LeaseLostError]
    assert effects(engine) == {}
    assert row(engine, job).status == "running", "it is the other's"
    assert not recorder.of(JobSettled)


def test_a_lease_that_the_keeper_finds_lost_ends_the_completion(
    engine: Engine, database_url: str, where: str
) -> None:
    """Told as ever while the block waits; an async one is cancelled in it, a thread learns of it at the fence."""
    (job,) = _jobs(engine)
    told = threading.Event()

    def inside(ctx: JobContext) -> None:
        _expire(engine, ctx.id)
        assert told.wait(PATIENCE)

    work = Completing(where, inside=inside)
    with running(work.jobs, database_url, lease=timedelta(seconds=2)) as recorder:
        recorder.wait_for(LeaseLost)
        told.set()
        recorder.wait_for(OutcomeDropped)
    assert effects(engine) == {}
    assert work.errors
    assert work.runs == {job: 1}


@pytest.mark.parametrize("swallow", [False, True])
def test_a_block_that_fails_is_a_failed_attempt(
    engine: Engine, database_url: str, where: str, swallow: bool
) -> None:
    """Rolled back and tried again, also when the handler hides the error and returns as if all were well."""
    (job,) = _jobs(engine)

    def inside(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            raise ValueError("the block fails")

    work = Completing(where, inside=inside, swallow=swallow)
    recorder = drain(work.jobs, database_url, **LONG)
    assert [(it.verb, it.status) for it in recorder.of(JobSettled)] == [
        (Verb.RETRY, JobStatus.READY),
        (Verb.COMPLETE, JobStatus.DONE),
    ]
    done = row(engine, job)
    assert done.last_error.startswith("ValueError: the block fails")
    assert (done.status, done.attempts, len(done.errors)) == ("done", 2, 1)
    assert effects(engine) == {job: 1}


def test_a_swallowed_permanent_error_is_permanent(engine: Engine, database_url: str) -> None:
    """What the block ended with goes through the handler's policy as if it had been let out."""
    (job,) = _jobs(engine)

    def inside(_: JobContext) -> None:
        raise KeyError("never")

    work = Completing("thread", inside=inside, swallow=True, settings={"permanent": (KeyError,)})
    drain(work.jobs, database_url, **LONG)
    assert (row(engine, job).status, row(engine, job).reason) == (
        "dead",
        "discarded: no retry after KeyError",
    )
    assert effects(engine) == {}


def _raise(_: JobContext) -> None:
    raise ValueError("too late")


@pytest.mark.parametrize(
    ("after", "verb", "error"),
    [(_raise, Verb.RETRY, "ValueError: too late"), (lambda _: Snooze(timedelta(0)), Verb.SNOOZE, None)],
    ids=["raises", "snoozes"],
)
def test_what_a_handler_says_after_its_completion_changes_nothing(
    engine: Engine, database_url: str, where: str, after: Any, verb: Verb, error: str | None
) -> None:
    """It is told, and the job stays done."""
    (job,) = _jobs(engine)
    work = Completing(where, after=after)
    recorder = drain(work.jobs, database_url, **LONG)
    (dropped,) = recorder.of(OutcomeDropped)
    assert (dropped.job_id, dropped.verb, dropped.cause) == (job, verb, "completed")
    assert dropped.error is None if error is None else dropped.error.startswith(error)
    assert _settled(recorder) == [(job, Verb.COMPLETE, JobStatus.DONE)]
    assert (row(engine, job).status, row(engine, job).attempts) == ("done", 1)
    assert effects(engine) == work.runs == {job: 1}


@pytest.mark.parametrize(
    ("given", "returned", "told"), [(None, {"n": 1}, 1), ({"n": 1}, {"n": 2}, 1), ({"n": 1}, {"n": 1}, 0)]
)
def test_a_result_that_comes_after_the_completion(
    engine: Engine, database_url: str, given: Any, returned: Any, told: int
) -> None:
    """What the completion was given is kept; that another one isn't is told, and the same is nothing to be told."""
    (job,) = _jobs(engine)
    jobs = Registry()

    @jobs.handler("work", keep_result=True)
    def work(ctx: JobContext) -> Any:
        with ctx.complete(result=given):
            pass
        return returned

    recorder = drain(jobs, database_url, **LONG)
    dropped = [(it.job_id, it.verb, it.cause) for it in recorder.of(OutcomeDropped)]
    assert dropped == [(job, Verb.COMPLETE, "completed")] * told
    assert (row(engine, job).status, row(engine, job).result) == ("done", given)


def test_a_handler_that_runs_on_after_its_completion(engine: Engine, proxy: Proxy, where: str) -> None:
    """It keeps its slot and nothing else: no renewal, no request reaches it, and its end frees the slot."""
    (job,) = _jobs(engine)
    completed, gate = threading.Event(), threading.Event()

    def after(_: JobContext) -> None:
        completed.set()
        assert gate.wait(PATIENCE)

    work = Completing(where, after=after)
    with running(work.jobs, proxy.url, queues={"default": 1}, lease=timedelta(seconds=2)) as recorder:
        assert completed.wait(PATIENCE)
        done = row(engine, job)
        assert done.status == "done"
        renewals = proxy.count(sends(renew()))
        with engine.begin() as connection:
            waiting = add(connection, "work")
        # Two renewal intervals of a keeper that has nothing to renew.
        asked = proxy.count(lambda text: "obj_description" in text)
        wait_until(lambda: proxy.count(lambda text: "obj_description" in text) >= asked + 2)
        assert proxy.count(sends(renew())) == renewals
        assert row(engine, waiting).status == "ready", "the slot is taken"
        assert not recorder.of(JobSettled), "told when its handler has ended"
        gate.set()
        recorder.wait_for(JobSettled, count=2)
    assert row(engine, job) == done
    for quiet in (LeaseLost, OutcomeDropped, CancelRequested):
        assert not recorder.of(quiet)


def test_a_cancel_request_during_the_block(engine: Engine, database_url: str) -> None:
    """Whoever lands first: a thread that goes on completes its job, the request comes to nothing."""
    (job,) = _jobs(engine)
    asked = threading.Event()

    def inside(ctx: JobContext) -> None:
        with engine.begin() as connection:
            request = "UPDATE jobqueue_jobs SET cancel_requested_at = now() WHERE id = :id"
            connection.execute(text(request), {"id": ctx.id})
        assert asked.wait(PATIENCE)

    work = Completing("thread", inside=inside)
    with running(work.jobs, database_url, lease=timedelta(seconds=1)) as recorder:
        recorder.wait_for(CancelRequested)
        asked.set()
        recorder.wait_for(JobSettled)
    assert (row(engine, job).status, effects(engine)) == ("done", {job: 1})
