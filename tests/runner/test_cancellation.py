"""A person cancels jobs that a runner holds: what the handler sees, and where the job ends."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select

from sa_jobqueue.admin import cancel, redrive
from sa_jobqueue.context import JobContext
from sa_jobqueue.events import CancelRequested, JobSettled, JobStarted
from sa_jobqueue.models import jobs as table
from sa_jobqueue.outcomes import Discard, Retry, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.states import JobStatus, Verb
from tests.support.runners import add, drain, row, running
from tests.support.waiting import wait_until

LEASE = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def cancel_and_commit(engine: Engine, *ids: int) -> None:
    with engine.begin() as connection:
        answers = cancel(connection, ids)
    assert [(answer.landed, answer.status) for answer in answers] == [(True, JobStatus.RUNNING)] * len(ids)


def returns(outcome: Any) -> Any:
    def handler(ctx: JobContext) -> Any:
        wait_until(lambda: ctx.cancel_requested, what="the handler to see the request")
        return outcome

    return handler


def raises(ctx: JobContext) -> None:
    wait_until(lambda: ctx.cancel_requested, what="the handler to see the request")
    raise ValueError("half done")


def stops(ctx: JobContext) -> None:
    while True:
        ctx.raise_if_cancelled()
        threading.Event().wait(0.01)


@pytest.mark.parametrize(
    ("handler", "verb", "status", "reason", "error"),
    [
        (returns(None), Verb.COMPLETE, "done", None, None),
        (returns(Retry(after=HOUR, reason="not yet")), Verb.RETRY, "cancelled", "cancelled", "not yet"),
        (returns(Snooze(HOUR)), Verb.SNOOZE, "cancelled", "cancelled", None),
        (returns(Discard("no use")), Verb.DISCARD, "cancelled", "cancelled", None),
        (raises, Verb.RETRY, "cancelled", "cancelled", "ValueError: half done"),
        (stops, Verb.ABORT, "cancelled", "cancelled", None),
    ],
    ids=["returns", "retry", "snooze", "discard", "raises", "raise_if_cancelled"],
)
def test_a_running_handler_sees_the_request(
    engine: Engine,
    database_url: str,
    handler: Any,
    verb: Verb,
    status: str,
    reason: str | None,
    error: str | None,
) -> None:
    """The next renewal brings it. What is done is done; every other way out ends in cancelled, and the error is kept."""
    jobs = Registry()
    jobs.handler("work")(handler)
    with engine.begin() as connection:
        job = add(connection, "work")
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted)
        cancel_and_commit(engine, job)
        assert [event.job_id for event in recorder.wait_for(CancelRequested)] == [job]
        (settled,) = recorder.wait_for(JobSettled)
    assert (settled.verb, settled.status) == (verb, status)
    ended = row(engine, job)
    assert (ended.status, ended.reason, ended.attempts) == (status, reason, 1)
    assert (ended.last_error or "").splitlines()[:1] == ([error] if error else [])


def test_a_job_that_has_not_begun_never_does(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that wait for a slot in the runner are running to the table: a request reaches them before their handler."""
    monkeypatch.setattr("sa_jobqueue.runner.pace.CLAIM_AHEAD_SECONDS", 2.0)
    # What waits for long is given back: here it is to wait until it is its turn.
    monkeypatch.setattr("sa_jobqueue.runner.pace.CLAIM_AHEAD_PATIENCE", 60.0)
    jobs, ran, gate = Registry(), [], threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext, blocks: bool = False) -> None:
        ran.append(ctx.id)
        if blocks:
            assert gate.wait(60)

    with engine.begin() as connection:
        for number in range(600):
            add(connection, "work", '{"blocks": true}' if number == 300 else "{}")
        (blocker,) = connection.scalars(select(table.c.id).where(table.c.payload["blocks"].as_boolean()))

    with running(jobs, database_url, lease=LEASE, queues={"default": 1}) as recorder:
        wait_until(lambda: blocker in ran, timeout=30)
        recorder.wait_for(JobSettled, count=300, timeout=30)
        with engine.connect() as connection:
            held = set(connection.scalars(select(table.c.id).where(table.c.status == "running")))
        waiting = held - {blocker}
        assert waiting
        assert waiting.isdisjoint(ran)
        cancel_and_commit(engine, *waiting)
        told = recorder.wait_for(CancelRequested, count=len(waiting))
        assert {event.job_id for event in told} == waiting
        gate.set()
        recorder.wait_for(JobSettled, count=600, timeout=30)
    assert waiting.isdisjoint(ran)
    assert len(ran) == 600 - len(waiting)
    aborted = [event for event in recorder.of(JobSettled) if event.verb is Verb.ABORT]
    assert {event.job_id for event in aborted} == waiting
    assert {(event.status, event.reason, event.duration) for event in aborted} == {
        ("cancelled", "cancelled", None)
    }
    assert {row(engine, job).reason for job in waiting} == {"cancelled"}


def test_a_redriven_job_runs_as_if_nothing_had_been_asked(engine: Engine, database_url: str) -> None:
    """The request belongs to the run that it ended: the next one is not told of it, and completes."""
    jobs, asked = Registry(), []

    @jobs.handler("work")
    def work(ctx: JobContext) -> Retry | None:
        asked.append(ctx.cancel_requested)
        if len(asked) > 1:
            return None
        wait_until(lambda: ctx.cancel_requested)
        return Retry(after=HOUR)

    with engine.begin() as connection:
        job = add(connection, "work")
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted)
        cancel_and_commit(engine, job)
        recorder.wait_for(JobSettled)
    assert row(engine, job).status == "cancelled"
    with engine.begin() as connection:
        assert [answer.landed for answer in redrive(connection, [job])] == [True]
    drain(jobs, database_url)
    assert (row(engine, job).status, asked) == ("done", [False, False])
