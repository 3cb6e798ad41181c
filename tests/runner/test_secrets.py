"""Payloads and passwords turn up nowhere: not in a line of the log, not in what is stored of an attempt.

Whatever becomes of a job, at INFO and at DEBUG, in this process and in one of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    JobSettled,
    JobStarted,
    LeaseLost,
    OutcomeDropped,
    SettleDelayed,
)
from sa_jobqueue.logs import log_event
from sa_jobqueue.outcomes import Discard, Retry, Settle
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import Runner
from tests.support.jobs import add_job, change, read_job
from tests.support.runners import Recorder, process, settings
from tests.support.secrets import PAYLOAD, assert_hidden, logged
from tests.support.waiting import wait_until

LEVELS = pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG], ids=["INFO", "DEBUG"])


def deep(payload: Any, levels: int = 5) -> None:
    """Fail where a local variable holds the payload."""
    held = dict(payload)
    if levels:
        deep(held, levels - 1)
    raise ValueError("x")


def insert_again(session: Session, token: str) -> None:
    """A unique violation, whose DETAIL quotes the token, and whose statement has it as a parameter."""
    session.execute(text("INSERT INTO tokens VALUES (:token)"), {"token": token})


def handlers() -> Registry:
    """One for each way in which a job can go."""
    jobs = Registry()
    soon = fixed(timedelta(0))

    @jobs.handler("success", keep_result=True)
    def success(ctx: JobContext, user: int, token: str) -> dict[str, str]:
        ctx.progress(0.5, f"with {ctx}")
        return {"token": token}

    @jobs.handler("fails", retry=soon)
    def fails(ctx: JobContext, user: int, token: str) -> None:
        deep(ctx.payload)

    @jobs.handler("fails async", retry=soon, queue="async")
    async def fails_async(ctx: JobContext, user: int, token: str) -> None:
        deep(ctx.payload)

    @jobs.handler("names itself", retry=soon)
    def names_itself(ctx: JobContext, user: int, token: str) -> None:
        raise ValueError(f"{ctx} {ctx!r} {names_itself}")

    @jobs.handler("other fields", retry=soon)
    def other_fields(user: int) -> None: ...

    @jobs.handler("odd reason", retry=soon)
    def odd_reason(ctx: JobContext, user: int, token: str) -> Discard:
        return Discard(ctx.payload)

    @jobs.handler("odd wait", retry=soon)
    def odd_wait(ctx: JobContext, user: int, token: str) -> Retry:
        return Retry(after=ctx.payload)

    @jobs.handler("odd outcome", retry=soon)
    def odd_outcome(ctx: JobContext, user: int, token: str) -> None:
        raise Settle(ctx.payload)

    @jobs.handler("odd progress", retry=soon)
    def odd_progress(ctx: JobContext, user: int, token: str) -> None:
        ctx.progress(ctx.payload)  # type: ignore[arg-type]

    @jobs.handler("odd result", retry=soon, keep_result=True)
    def odd_result(ctx: JobContext, user: int, token: str) -> Any:
        return {"token": {token}}

    @jobs.handler("in a block", retry=soon)
    def in_a_block(ctx: JobContext, user: int, token: str) -> None:
        with ctx.complete() as session:
            insert_again(session, token)

    @jobs.handler("refused")
    def refused(user: int, token: str) -> None: ...

    @jobs.handler("leaves a task", queue="async")
    async def leaves_a_task(ctx: JobContext, user: int, token: str) -> None:
        async def later() -> None:
            deep(ctx.payload)

        task = asyncio.get_running_loop().create_task(later())
        await asyncio.wait([task])
        del task
        gc.collect()

    @jobs.handler("waits")
    def waits(ctx: JobContext, user: int, token: str) -> None:
        wait_until(lambda: ctx.lost, what="the loss")
        deep(ctx.payload)

    return jobs


ENDS = {
    "success": "done",
    "leaves a task": "done",
    **dict.fromkeys(
        (
            *(
                "fails",
                "fails async",
                "names itself",
                "other fields",
                "odd reason",
                "odd wait",
                "odd outcome",
            ),
            *("odd progress", "odd result", "in a block"),
        ),
        "dead",
    ),
}


def drained(registry: Registry, url: str) -> Recorder:
    """Run all that is due, logged as the command does it."""
    recorder = Recorder()
    queues = {"default": 2, "async": 2}
    runner = Runner(registry, url, settings(burst=True, queues=queues), subscribers=[recorder, log_event])
    assert runner.run(handle_signals=False) == 0
    assert_hidden(f"{runner!r} {runner} {runner.settings} {registry} {recorder.events}", "reprs")
    return recorder


@contextmanager
def runner(url: str, **changes: Any) -> Iterator[Recorder]:
    """A runner in this process, logged as the command does it."""
    recorder = Recorder()
    with Runner(handlers(), url, settings(**changes), subscribers=[recorder, log_event]):
        yield recorder


def assert_stored_without(engine: Engine, job_id: int) -> Any:
    """No column but those that are for it holds the secret."""
    row = read_job(engine, job_id)
    columns = {name: value for name, value in row._mapping.items() if name not in ("payload", "result")}
    assert_hidden(str(columns), f"the row of {row.kind}")
    return row


@LEVELS
def test_however_a_job_ends(guarded: Engine, guarded_url: str, level: int) -> None:
    """Neither the log nor a row tells what is in it; the lines say which job it was."""
    registry = handlers()
    queues = {handler.kind: handler.queue for handler in registry.handlers}
    ids = {
        kind: add_job(guarded, kind=kind, queue=queues[kind], payload=PAYLOAD, max_attempts=2)
        for kind in ENDS
    }
    unknown = add_job(guarded, kind="unknown", payload=PAYLOAD)
    with logged(level) as lines:
        recorder = drained(registry, guarded_url)
    assert_hidden(lines.text, "the log")
    statuses = {kind: assert_stored_without(guarded, job_id).status for kind, job_id in ids.items()}
    assert statuses == ENDS
    assert read_job(guarded, unknown).status == "ready"
    for event in recorder.of(JobSettled):
        line = next(one for one in lines.records if getattr(one, "job_id", None) == event.job_id)
        assert f"job {event.job_id} {event.kind}" in line.getMessage()
        assert (vars(line)["queue"], vars(line)["attempt"]) == (event.queue, 1)
    assert any("Task exception was never retrieved" in one for one in lines.texts)


@LEVELS
def test_a_row_that_the_database_refuses(guarded: Engine, guarded_url: str, level: int) -> None:
    """Its error quotes the whole row; what is told of it is the constraint."""
    job_id = add_job(guarded, kind="refused", payload=PAYLOAD)
    with logged(level) as lines, runner(guarded_url) as recorder:
        recorder.wait_for(SettleDelayed)
        with guarded.begin() as connection:
            connection.execute(text("ALTER TABLE jobqueue_jobs DROP CONSTRAINT app_c"))
        recorder.wait_for(JobSettled)
    assert_hidden(lines.text, "the log")
    assert "constraint app_c" in lines.text
    assert_stored_without(guarded, job_id)


@LEVELS
def test_a_lost_lease(guarded: Engine, guarded_url: str, level: int) -> None:
    """Somebody else has the job while its handler runs, and then it comes back with an error."""
    job_id = add_job(guarded, kind="waits", payload=PAYLOAD)
    with logged(level) as lines, runner(guarded_url) as recorder:
        recorder.wait_for(JobStarted)
        change(guarded, job_id, lease_token=uuid4())
        recorder.wait_for(LeaseLost)
        recorder.wait_for(OutcomeDropped)
    assert_hidden(lines.text + str(recorder.events), "the log")
    assert f"job {job_id} waits: lease lost" in lines.text


@pytest.mark.parametrize("style", ["console", "json"])
@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_command(guarded: Engine, guarded_url: str, level: str, style: str) -> None:
    """All that a real process writes, from its start to its end; the lines say which job it was."""
    kinds = ("success", "fails", "other fields", "unknown")
    ids = {kind: add_job(guarded, kind=kind, payload=PAYLOAD, max_attempts=1) for kind in kinds}
    options = ("--log-level", level, "--log-format", style)
    with process("tests.apps.secrets:jobs", guarded_url, *options) as command:
        wait_until(lambda: read_job(guarded, ids["success"]).status == "done")
        wait_until(lambda: read_job(guarded, ids["other fields"]).status == "dead")
        wait_until(lambda: read_job(guarded, ids["fails"]).status == "dead")
        wait_until(lambda: "unknown" in command.text)
        command.send(signal.SIGTERM)
        assert command.wait() == 0
        written = command.text
    assert_hidden(written, "the log")
    for kind in kinds[:3]:
        assert f"job {ids[kind]} {kind}" in written
        assert_stored_without(guarded, ids[kind])
    if style == "json":
        lines = [json.loads(line) for line in written.splitlines()]
        (done,) = (line for line in lines if line.get("kind") == "success" and line["event"] == "JobSettled")
        assert (done["job_id"], done["queue"], done["attempt"]) == (ids["success"], "default", 1)
