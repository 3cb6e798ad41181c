"""The handlers of the runners: each writes down that it began and ended, in short transactions of its own."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import Engine, ExceptionContext, create_engine, event, text

from sa_jobqueue import JobContext, Registry, enqueue, fixed

#: The application's own way to the database; the runner may have another one.
URL_VARIABLE = "CHAOS_DATABASE_URL"
#: So many attempts that faults alone never use them up.
MANY = 1000
AGAIN = fixed(timedelta(milliseconds=200))
THREADS, LOOP = "threads", "loop"

BEGIN = text("INSERT INTO chaos_runs (job_id, attempt, pid) VALUES (:job_id, :attempt, :pid) RETURNING id")
END = text("UPDATE chaos_runs SET ended_at = clock_timestamp() WHERE id = :id")
EFFECT = text("INSERT INTO chaos_effects (job_id) VALUES (:job_id)")

jobs = Registry()


@cache
def engine() -> Engine:
    return pool(os.environ[URL_VARIABLE], size=4)


def pool(url: str, *, size: int) -> Engine:
    """Sessions that turn out to be read-only are replaced, as an application sees to that lives through failovers."""
    engine = create_engine(url, pool_size=size, max_overflow=0)

    @event.listens_for(engine, "handle_error")
    def replace(context: ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == "25006":
            context.is_disconnect = True

    return engine


def begin(ctx: JobContext) -> int:
    with engine().begin() as connection:
        parameters = {"job_id": ctx.id, "attempt": ctx.attempt, "pid": os.getpid()}
        return int(connection.execute(BEGIN, parameters).scalar_one())


def end(run: int) -> None:
    with engine().begin() as connection:
        connection.execute(END, {"id": run})


def complete(ctx: JobContext, *more: Any) -> None:
    """One effect, in one commit with the end of the job."""
    with ctx.complete() as session:
        session.execute(EFFECT, {"job_id": ctx.id})
        session.add_all(more)


@jobs.handler("note", queue=THREADS, max_attempts=MANY, retry=AGAIN)
def note(ctx: JobContext, mark: int) -> None:
    """Done by its return."""
    end(begin(ctx))


@jobs.handler("effect", queue=THREADS, max_attempts=MANY, retry=AGAIN)
def effect(ctx: JobContext, mark: int) -> None:
    run = begin(ctx)
    complete(ctx)
    end(run)


@jobs.handler("flaky", queue=THREADS, max_attempts=MANY, retry=AGAIN)
def flaky(ctx: JobContext, mark: int) -> None:
    """Fails at first, in the middle of its completion."""
    run = begin(ctx)
    with ctx.complete() as session:
        session.execute(EFFECT, {"job_id": ctx.id})
        if ctx.attempt == 1:
            raise RuntimeError("the first attempt fails")
    end(run)


@jobs.handler("chain", queue=THREADS, max_attempts=MANY, retry=AGAIN)
def chain(ctx: JobContext, mark: int) -> None:
    """Its completion adds another job, with the opposite mark."""
    run = begin(ctx)
    complete(ctx, enqueue(note.call(mark=-mark)))
    end(run)


@jobs.handler("nap", queue=THREADS, max_attempts=MANY, retry=AGAIN)
def nap(ctx: JobContext, mark: int, seconds: float) -> None:
    run = begin(ctx)
    time.sleep(seconds)
    complete(ctx)
    end(run)


@jobs.handler("doomed", queue=THREADS, max_attempts=2, retry=AGAIN)
def doomed(ctx: JobContext, mark: int) -> None:
    """Never succeeds."""
    end(begin(ctx))
    raise RuntimeError("it always fails")


@jobs.handler("await", queue=LOOP, max_attempts=MANY, retry=AGAIN)
async def wait(ctx: JobContext, mark: int, seconds: float) -> None:
    run = await asyncio.to_thread(begin, ctx)
    await asyncio.sleep(seconds)
    async with ctx.complete() as session:
        await session.execute(EFFECT, {"job_id": ctx.id})
    await asyncio.to_thread(end, run)


@jobs.handler("await.note", queue=LOOP, max_attempts=MANY, retry=AGAIN)
async def wait_and_return(ctx: JobContext, mark: int) -> None:
    run = await asyncio.to_thread(begin, ctx)
    await asyncio.to_thread(end, run)
