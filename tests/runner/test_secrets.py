"""Payloads and passwords turn up nowhere: not in a line of the log, not in what is stored of an attempt.

Whatever becomes of a job, at INFO and at DEBUG, in this process and in one of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

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
from sa_jobqueue.logs import log_event
from sa_jobqueue.outcomes import Discard, Retry, Settle
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import Runner
from sa_jobqueue.testing import start_postgres
from sa_jobqueue.testing.server import connect
from sa_jobqueue.waiting import wait_for
from tests.support import forked
from tests.support.databases import FAST, install
from tests.support.jobs import add_job, change, read_job
from tests.support.runners import ROOT, Recorder, process, settings
from tests.support.secrets import PASSWORD, PAYLOAD, SECRET, assert_hidden, logged
from tests.support.waiting import PATIENCE, wait_until

LEVELS = pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG], ids=["INFO", "DEBUG"])


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """A database of the queue that asks for a password, in a URL that has it."""
    with start_postgres(settings=FAST, tcp=True) as server:
        with connect(server.url(tcp=True)) as connection:
            connection.execute(f"CREATE ROLE app SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        url = make_url(server.url(tcp=True)).set(username="app", password=PASSWORD)
        shown = url.render_as_string(hide_password=False)
        install(shown)
        yield shown


@pytest.fixture
def guarded(guarded_url: str) -> Iterator[Engine]:
    """An application's engine there; the tables are empty."""
    engine = create_engine(guarded_url)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE jobqueue_jobs, jobqueue_idle"))
        connection.execute(text("CREATE TABLE IF NOT EXISTS tokens (token text PRIMARY KEY)"))
        connection.execute(
            text("INSERT INTO tokens VALUES (:token) ON CONFLICT DO NOTHING"), {"token": SECRET}
        )
        connection.execute(
            text(
                "ALTER TABLE jobqueue_jobs DROP CONSTRAINT IF EXISTS app_c, "
                "ADD CONSTRAINT app_c CHECK (kind <> 'refused' OR status <> 'done')"
            )
        )
    yield engine
    engine.dispose()


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


def _wrong(url: str, change: str) -> str:
    """The URL with another password, in its own place or as an option, or with an address where nobody listens."""
    parsed = make_url(url)
    match change:
        case "password":
            parsed = parsed.set(password=f"{PASSWORD}-not")
        case "option":
            parsed = parsed.set(password=None).update_query_dict({"password": f"{PASSWORD}-not"})
        case "address":
            parsed = parsed.set(port=1)
    return parsed.render_as_string(hide_password=False)


WRONG = pytest.mark.parametrize("change", ["password", "option", "address"])


@WRONG
@pytest.mark.parametrize("arguments", [("run", "tests.apps.secrets:jobs"), ("stats",), ("jobs", "show", "1")])
def test_commands_that_are_not_let_in(guarded_url: str, change: str, arguments: tuple[str, ...]) -> None:
    """One message with the address; not even the wrong password is in it, which may be nearly right."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "DATABASE_URL": _wrong(guarded_url, change),
    }
    environment["SA_JOBQUEUE_LOG_LEVEL"] = "debug"
    done = forked.run(["sa_jobqueue", *arguments], cwd=ROOT, env=environment, timeout=PATIENCE)
    assert done.returncode == 3
    assert "can't reach the database at postgresql+psycopg://app" in done.stderr
    assert_hidden(done.stderr + done.stdout)


@WRONG
@LEVELS
def test_runners_that_are_not_let_in(guarded_url: str, change: str, level: int) -> None:
    """At the start the error comes out; neither its traceback nor any line says what was given."""
    with logged(level) as lines:
        given = Runner(handlers(), _wrong(guarded_url, change), settings(), subscribers=[log_event])
        with pytest.raises(OperationalError) as caught:
            given.start()
    assert_hidden("".join(traceback.format_exception(caught.value)) + repr(caught.value) + lines.text)


@LEVELS
def test_a_password_that_was_changed_meanwhile(guarded: Engine, guarded_url: str, level: int) -> None:
    """Loops that lose their connections and are not let in again say so for as long as it lasts."""
    other = make_url(guarded_url).set(username="other").render_as_string(hide_password=False)
    with guarded.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS other"))
        connection.execute(text(f"CREATE ROLE other SUPERUSER LOGIN PASSWORD '{PASSWORD}'"))
    with logged(level) as lines, runner(other) as recorder:
        with guarded.begin() as connection:
            connection.execute(text("ALTER ROLE other PASSWORD 'another'"))
        with guarded.begin() as connection:
            of_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'other'"
            connection.execute(text(of_others))
        recorder.wait_for(LoopFailed)
        with guarded.begin() as connection:
            connection.execute(text(f"ALTER ROLE other PASSWORD '{PASSWORD}'"))
        recorder.wait_for(LoopRecovered)
    assert_hidden(lines.text + str(recorder.events))
    assert "password authentication failed" in lines.text


@WRONG
@pytest.mark.parametrize("driver", ["sync", "psycopg", "asyncpg"])
def test_waiters_that_are_not_let_in(guarded_url: str, change: str, driver: str) -> None:
    """What comes out of `wait_for` and of an enqueue is the driver's own error."""
    url = make_url(_wrong(guarded_url, change))

    async def ask() -> None:
        engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
        try:
            await wait_for(engine, 7, timeout=timedelta(seconds=1))
        finally:
            await engine.dispose()

    def wait() -> Any:
        if driver != "sync":
            return asyncio.run(ask())
        return wait_for(create_engine(url), 7, timeout=timedelta(seconds=1))

    with pytest.raises(
        Exception, match=r"password authentication failed|refused|Connect call failed"
    ) as caught:
        wait()
    assert_hidden("".join(traceback.format_exception(caught.value)) + repr(caught.value))
