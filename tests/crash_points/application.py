"""The handlers of the workload. Each notes its start in a transaction of its own, past the proxy, before all else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import timedelta
from functools import cache
from typing import Any

import psycopg
from sqlalchemy import Engine, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_jobqueue import Discard, JobContext, Registry, Retry, Snooze, enqueue, fixed
from sa_jobqueue.database import normalise_url
from tests.support.waiting import PATIENCE

#: The URL that leads through the proxy, and the one that doesn't.
PROXIED, DIRECT = "CRASH_POINTS_PROXIED", "CRASH_POINTS_DIRECT"
RUNNER = "CRASH_POINTS_RUNNER"
THREADS, LOOP = "threads", "loop"
SOON = fixed(timedelta(milliseconds=20))
#: Longer than jobs that were claimed ahead wait for a handler here.
LONG = 0.2
WRITE = text("INSERT INTO effects (job_id, runner) VALUES (:job_id, :runner)")

jobs = Registry()
_noting = threading.Lock()


@cache
def _notes() -> psycopg.Connection[Any]:
    url = normalise_url(os.environ[DIRECT]).set(drivername="postgresql")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


@cache
def _engine() -> Engine:
    return create_engine(os.environ[PROXIED], poolclass=NullPool)


@cache
def _async_engine() -> AsyncEngine:
    return create_async_engine(os.environ[PROXIED], poolclass=NullPool)


def _begin(ctx: JobContext) -> int:
    """Note the start; which one of this job it is, whoever ran the others."""
    with _noting:
        cursor = _notes().execute(
            "INSERT INTO starts (job_id, attempt, runner) VALUES (%s, %s, %s)"
            " RETURNING (SELECT count(*) + 1 FROM starts WHERE job_id = %s)",
            (ctx.id, ctx.attempt, ctx.runner_id, ctx.id),
        )
        return int((cursor.fetchone() or (0,))[0])


def _ask_to_cancel(ctx: JobContext) -> None:
    with _noting:
        _notes().execute(
            "UPDATE jobqueue_jobs SET cancel_requested_at = coalesce(cancel_requested_at, now())"
            " WHERE id = %s AND status = 'running'",
            (ctx.id,),
        )


def _lease(ctx: JobContext) -> Any:
    with _noting:
        return _notes().execute("SELECT lease_until FROM jobqueue_jobs WHERE id = %s", (ctx.id,)).fetchone()


def _work_of(ctx: JobContext) -> dict[str, Any]:
    return {"job_id": ctx.id, "runner": ctx.runner_id}


def _follow_up(ctx: JobContext) -> Any:
    return enqueue("follow-up", {"parent": ctx.id}, queue=ctx.queue, max_attempts=20)


@jobs.handler("return", queue=THREADS, retry=SOON, keep_result=True)
def returns(ctx: JobContext) -> dict[str, int]:
    _begin(ctx)
    return {"job": ctx.id}


@jobs.handler("return-async", queue=LOOP, retry=SOON, keep_result=True)
async def returns_async(ctx: JobContext) -> dict[str, int]:
    _begin(ctx)
    return {"job": ctx.id}


@jobs.handler("follow-up", queue=THREADS, retry=SOON)
def follow_up(ctx: JobContext, parent: int) -> None:
    _begin(ctx)


@jobs.handler("progress", queue=THREADS, retry=SOON)
def progresses(ctx: JobContext) -> None:
    """One report is written while the handler runs, the last one with its outcome."""
    _begin(ctx)
    ctx.progress(0.5, "half")
    time.sleep(0.05)
    ctx.progress(1.0, "whole")


@jobs.handler("block", queue=THREADS, retry=SOON)
def block(ctx: JobContext) -> None:
    _begin(ctx)
    with ctx.complete(result={"job": ctx.id}) as session:
        session.execute(WRITE, _work_of(ctx))
        session.add(_follow_up(ctx))


@jobs.handler("block-async", queue=LOOP, retry=SOON)
async def block_async(ctx: JobContext) -> None:
    _begin(ctx)
    async with ctx.complete(result={"job": ctx.id}) as session:
        await session.execute(WRITE, _work_of(ctx))
        session.add(_follow_up(ctx))


@jobs.handler("join", queue=THREADS, retry=SOON)
def joins(ctx: JobContext) -> None:
    _begin(ctx)
    with Session(_engine()) as session, session.begin():
        ctx.complete_in(session, result={"job": ctx.id})
        session.execute(WRITE, _work_of(ctx))
        session.add(_follow_up(ctx))


@jobs.handler("join-async", queue=LOOP, retry=SOON)
async def joins_async(ctx: JobContext) -> None:
    _begin(ctx)
    async with AsyncSession(_async_engine()) as session, session.begin():
        await ctx.complete_in(session, result={"job": ctx.id})
        await session.execute(WRITE, _work_of(ctx))
        session.add(_follow_up(ctx))


@jobs.handler("block-fails", queue=THREADS, retry=SOON)
def block_fails(ctx: JobContext) -> None:
    """The first start fails behind its write, and says so to nobody: it returns as if all were well."""
    start = _begin(ctx)
    try:
        with ctx.complete(result={"job": ctx.id}) as session:
            session.execute(WRITE, _work_of(ctx))
            session.add(_follow_up(ctx))
            if start == 1:
                raise RuntimeError("changed its mind")
    except RuntimeError:
        if start > 1:
            raise


@jobs.handler("retry", queue=THREADS, retry=SOON)
def retries(ctx: JobContext) -> Retry | None:
    return Retry(timedelta(milliseconds=20), "not yet") if _begin(ctx) == 1 else None


@jobs.handler("retry-async", queue=LOOP, retry=SOON)
async def retries_async(ctx: JobContext) -> Retry | None:
    return Retry(timedelta(milliseconds=20), "not yet") if _begin(ctx) == 1 else None


@jobs.handler("snooze", queue=THREADS, retry=SOON)
def snoozes(ctx: JobContext) -> Snooze | None:
    return Snooze(timedelta(milliseconds=20)) if _begin(ctx) == 1 else None


@jobs.handler("discard", queue=THREADS, retry=SOON)
def discards(ctx: JobContext) -> Discard:
    _begin(ctx)
    return Discard("nobody wants it")


@jobs.handler("fail", queue=THREADS, retry=SOON)
def fails(ctx: JobContext) -> None:
    """Until its attempts are used up."""
    _begin(ctx)
    raise RuntimeError("never works")


@jobs.handler("cancel", queue=THREADS, retry=SOON)
def is_cancelled(ctx: JobContext) -> None:
    """Somebody asks to cancel it while it runs; it hears of that with its progress or a renewal."""
    _begin(ctx)
    _ask_to_cancel(ctx)
    ctx.progress(None, "asked")
    ends_at = time.monotonic() + PATIENCE
    while not (ctx.cancel_requested or ctx.lost) and time.monotonic() < ends_at:
        time.sleep(0.01)
    ctx.raise_if_cancelled()


@jobs.handler("cancel-async", queue=LOOP, retry=SOON)
async def is_cancelled_async(ctx: JobContext) -> None:
    _begin(ctx)
    _ask_to_cancel(ctx)
    ctx.progress(None, "asked")
    await asyncio.sleep(PATIENCE)


@jobs.handler("long", queue=THREADS, retry=SOON)
def takes_long(ctx: JobContext) -> None:
    """Until its lease has been renewed. Meanwhile what was claimed ahead is given back, and the flag is taken back."""
    _begin(ctx)
    ends_at = time.monotonic() + PATIENCE
    taken_until = _lease(ctx)
    time.sleep(LONG)
    while _lease(ctx) == taken_until and not ctx.lost and time.monotonic() < ends_at:
        time.sleep(0.02)
