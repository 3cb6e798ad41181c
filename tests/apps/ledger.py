"""Handlers that write down, in transactions of their own, when they began and ended, and then do something drastic."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

from sqlalchemy import create_engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.database import normalise_url
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed

jobs = Registry()
engine = create_engine(
    normalise_url(os.environ["SA_JOBQUEUE_DATABASE_URL"]), pool_size=20, pool_pre_ping=True
)
SOON = fixed(timedelta(milliseconds=100))
BOMB_BACKOFF = timedelta(milliseconds=400)  # once more for each attempt


def note(ctx: JobContext, what: str) -> None:
    """One line in the ledger, committed at once."""
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO ledger (job_id, attempt, pid, note) VALUES (:job_id, :attempt, :pid, :note)"),
            {"job_id": ctx.id, "attempt": ctx.attempt, "pid": os.getpid(), "note": what},
        )


def noted(what: str) -> bool:
    """Whether anybody has written this into the ledger."""
    with engine.connect() as connection:
        found = text("SELECT EXISTS (SELECT FROM ledger WHERE note = :note)")
        return bool(connection.execute(found, {"note": what}).scalar_one())


@jobs.handler("quick", retry=SOON)
def quick(ctx: JobContext) -> None:
    note(ctx, "quick")


@jobs.handler("hang-once", retry=SOON)
def hang_once(ctx: JobContext) -> None:
    """Hangs at the first attempt, as if the process were about to die in it."""
    note(ctx, "begin")
    if ctx.attempt == 1:
        time.sleep(120)
    note(ctx, "end")


@jobs.handler("hang", retry=SOON)
def hang(ctx: JobContext) -> None:
    note(ctx, "begin")
    time.sleep(120)


@jobs.handler("bomb", retry=lambda attempt, _error: attempt * BOMB_BACKOFF)
def bomb(ctx: JobContext) -> None:
    """Takes its whole process down."""
    note(ctx, "bomb")
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.handler("nap", retry=SOON)
def nap(ctx: JobContext, seconds: float) -> None:
    note(ctx, "begin")
    time.sleep(seconds)
    note(ctx, "end")
