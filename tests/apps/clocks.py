"""Handlers that write down when they began by the database's clock, and how far their own is away from it.

Run as a program it enqueues: `python -m tests.apps.clocks QUEUE...`.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from functools import cache

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sa_jobqueue import JobContext, Registry, enqueue, fixed
from sa_jobqueue.database import normalise_url

LEDGER = (
    "CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, job_id bigint, attempt int, skew float,"
    " at timestamptz)"
)
DELAY = BACKOFF = timedelta(seconds=2)
#: Of the handler that outlives its lease.
LONG = timedelta(seconds=5)

jobs = Registry()


@cache
def engine() -> Engine:
    return create_engine(normalise_url(os.environ["SA_JOBQUEUE_DATABASE_URL"]))


def _note(ctx: JobContext) -> None:
    with engine().begin() as connection:
        connection.execute(
            text(
                "INSERT INTO ledger (job_id, attempt, skew, at)"
                " SELECT :job_id, :attempt, :mine - extract(epoch FROM at), at FROM clock_timestamp() AS at"
            ),
            {"job_id": ctx.id, "attempt": ctx.attempt, "mine": time.time()},
        )


@jobs.handler("note")
def note(ctx: JobContext) -> None:
    _note(ctx)


@jobs.handler("fail-once", retry=fixed(BACKOFF))
def fail_once(ctx: JobContext) -> None:
    _note(ctx)
    if ctx.attempt == 1:
        raise RuntimeError("once")


@jobs.handler("long")
def long(ctx: JobContext) -> None:
    _note(ctx)
    time.sleep(LONG.total_seconds())


def main(queues: list[str]) -> None:
    """One job of each sort into each queue, in a transaction of its own."""
    for queue in queues:
        with Session(engine()) as session, session.begin():
            session.add_all(
                [
                    enqueue("note", queue=queue),
                    enqueue("note", queue=queue, delay=DELAY),
                    enqueue("fail-once", queue=queue),
                    enqueue("long", queue=queue),
                ]
            )


if __name__ == "__main__":
    main(sys.argv[1:])
