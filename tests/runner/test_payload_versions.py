"""Jobs of older and of newer code, through whole runners: the one is brought up, the other waits for its runner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sa_jobqueue import Discard, Job, JobContext, PayloadError, Registry, Settle, admin, enqueue, never
from sa_jobqueue.events import JobSettled, JobStarted, NewerPayload
from sa_jobqueue.runner import verdict
from tests.support.runners import drain, row, running, wait_for_row

MINUTE = timedelta(minutes=1)


def named(payload: Any) -> Any:
    payload["document_id"] = payload.pop("id")
    return payload


def code(version: int, seen: list[Any], **settings: Any) -> Registry:
    """The application as it is at this version."""
    jobs = Registry()

    @jobs.handler("embed", payload_version=version, **settings)
    def embed(ctx: JobContext, document_id: int) -> None:
        seen.append((ctx.attempt, ctx.payload, document_id))

    return jobs


def put(engine: Engine, payload: Any, version: int | None, **more: Any) -> int:
    with Session(engine) as session, session.begin():
        session.add(job := enqueue("embed", payload, payload_version=version, **more))
        session.flush()
        assert job.enqueued
        return job.enqueued.id


def stored(engine: Engine, job: int) -> Any:
    with engine.connect() as connection:
        query = text("SELECT payload, payload_version FROM jobqueue_jobs WHERE id = :id")
        return tuple(connection.execute(query, {"id": job}).one())


def test_an_old_job_runs_under_new_code(engine: Engine, database_url: str, where: str) -> None:
    """The handler and its context have the payload of today, the row keeps the one that was enqueued."""
    seen: list[Any] = []
    jobs = Registry()
    if where == "asyncio":

        @jobs.handler("embed", payload_version=3, upcasters={1: named, 2: lambda old: {**old, "model": "m1"}})
        async def embed_async(ctx: JobContext, document_id: int, model: str) -> None:
            seen.append((ctx.payload, document_id, model))
    else:

        @jobs.handler("embed", payload_version=3, upcasters={1: named, 2: lambda old: {**old, "model": "m1"}})
        def embed(ctx: JobContext, document_id: int, model: str) -> None:
            seen.append((ctx.payload, document_id, model))

    job = put(engine, {"id": 7}, None)
    drain(jobs, database_url)
    assert row(engine, job).status == "done"
    assert seen == [({"document_id": 7, "model": "m1"}, 7, "m1")]
    assert stored(engine, job) == ({"id": 7}, 1)


def test_a_retry_begins_with_the_stored_payload(engine: Engine, database_url: str) -> None:
    """An upcaster that changes it in place would fail the second time, were it not a copy."""
    seen: list[Any] = []
    jobs = Registry()

    @jobs.handler(
        "embed", payload_version=2, upcasters={1: named}, retry=lambda _attempt, _error: timedelta(0)
    )
    def embed(ctx: JobContext, document_id: int) -> None:
        seen.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("once")

    job = put(engine, {"id": 7}, 1)
    drain(jobs, database_url)
    assert (row(engine, job).status, seen) == ("done", [1, 2])


def fails(payload: Any) -> Any:
    return int(payload["id"])


def drops(payload: Any) -> Any:
    raise Settle(Discard("of no use any more"))


@pytest.mark.parametrize(
    ("upcasters", "reason", "error"),
    [
        (
            {1: fails, 2: named},
            "discarded: no retry after PayloadError",
            "upcaster of payload version 1, tests.runner.test_payload_versions.fails, raised ValueError\n  at ",
        ),
        (
            {2: named},
            "discarded: no retry after PayloadError",
            "version 1, and the handler takes no older one than 2",
        ),
        ({}, "discarded: no retry after PayloadError", "give it upcasters={1: ...}"),
        ({1: drops, 2: named}, "discarded: of no use any more", None),
    ],
)
def test_what_can_not_be_brought_up_is_a_failure(
    engine: Engine, database_url: str, upcasters: Any, reason: str, error: str | None
) -> None:
    """Of the attempt, by the handler's own policy; no value of the payload is told."""
    seen: list[Any] = []
    job = put(engine, {"id": "hunter2"}, 1)
    drain(code(3, seen, upcasters=upcasters, permanent=[PayloadError], retry=never()), database_url)
    dead = row(engine, job)
    assert (dead.status, dead.reason, seen) == ("dead", reason, [])
    assert error is None or error in dead.last_error
    assert "hunter2" not in str(dead.errors)


def test_a_job_of_newer_code_waits_for_it(engine: Engine, database_url: str) -> None:
    """The old runner puts it back once, for a minute, and no attempt is used; the new one runs it."""
    seen: list[Any] = []
    job = put(engine, {"document_id": 7}, 2, max_attempts=1)
    recorder = drain(code(1, seen), database_url)
    (told,) = recorder.of(NewerPayload)
    assert (told.job_id, told.payload_version, told.newest, told.retry_in) == (job, 2, 1, MINUTE)
    (settled,) = recorder.of(JobSettled)
    assert (settled.verb, settled.status, settled.duration) == ("snooze", "ready", None)
    waits = row(engine, job)
    assert (waits.status, waits.attempts, waits.returned, waits.last_error) == ("ready", 1, 1, None)
    assert MINUTE - timedelta(seconds=1) < waits.run_at - waits.updated_at <= MINUTE
    assert (seen, recorder.of(JobStarted)) == ([], [])

    with engine.begin() as connection:
        admin.reschedule(connection, [job], delay=timedelta(0))
    drain(code(2, seen), database_url)
    assert (row(engine, job).status, seen) == ("done", [(1, {"document_id": 7}, 7)])


def test_a_backlog_of_newer_jobs_is_told_once(engine: Engine, database_url: str) -> None:
    """Per kind and version, for as long as they wait: each of them is put back all the same."""
    ids = [put(engine, {}, version) for version in (2, 2, 2, 3)]
    recorder = drain(code(1, []), database_url)
    assert {told.payload_version for told in recorder.of(NewerPayload)} == {2, 3}
    assert len(recorder.of(NewerPayload)) == 2
    assert [row(engine, job).returned for job in ids] == [1, 1, 1, 1]


def test_old_and_new_runners_stand_side_by_side(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a deploy, whoever takes a job first: it is done once, by the new code."""
    monkeypatch.setattr(verdict, "NEWER_CODE_WAIT", timedelta(milliseconds=20))
    old, new = [], []  # type: ignore[var-annotated]
    with running(code(1, old), database_url) as recorder:
        put(engine, {"document_id": 1}, 1)
        job = put(engine, {"document_id": 2}, 2, max_attempts=1)
        recorder.wait_for(NewerPayload, count=3)
        assert row(engine, job).status in ("ready", "running")
        with running(code(2, new, upcasters={1: dict}), database_url):
            done = wait_for_row(engine, job, lambda job: job.status == "done")
    assert done.attempts - done.returned == 1
    assert [one[2] for one in old] == [1]
    assert [one[2] for one in new] == [2]


def test_a_newer_job_may_be_cancelled_or_expire(engine: Engine, database_url: str) -> None:
    """What the row says of itself goes before what the handler can't read."""
    jobs = code(1, [])
    past = put(engine, {}, 2)
    with engine.begin() as connection:
        connection.execute(text("UPDATE jobqueue_jobs SET expires_at = now() - interval '1 s'"))
    drain(jobs, database_url)
    assert row(engine, past).reason == "expired"
    waits = put(engine, {}, 2)
    drain(jobs, database_url)
    with Session(engine) as session, session.begin():
        admin.cancel(session, [waits])
        assert session.get_one(Job, waits).status == "cancelled"
