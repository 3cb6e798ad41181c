"""This queue as one more contestant of a harness that compares job queues, each by a driver of this shape.

The harness puts its folder of drivers, with the module `common`, on PYTHONPATH. To add this one: copy it there as
`peer_sa_jobqueue.py`, add `"sa_jobqueue": ("peer_sa_jobqueue.py", py("sa_jobqueue"), {})` to its `PEERS`, and install
this project with the extra `binary` into the environment of that name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from common import DSN, Driver, hit, main, tune
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from sa_jobqueue import enqueue, enqueue_many
from sa_jobqueue.database import normalise_url
from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner, RunnerSettings

CONCURRENCY = tune("concurrency", RunnerSettings().queues["default"])
jobs = Registry()


@jobs.handler("noop")
def noop(i: int) -> None:
    hit(i)


class SaJobqueue(Driver):  # type: ignore[misc]  # the base comes with the harness
    packages = ("sa-jobqueue", "SQLAlchemy", "psycopg")
    pending_sql = "SELECT count(*) FROM jobqueue_jobs WHERE status <> 'done'"
    settings = {"concurrency": CONCURRENCY}  # noqa: RUF012 - the harness reads it off the class

    def __init__(self) -> None:
        # For `info` the harness names no database.
        self._engine = create_engine(normalise_url(DSN)) if DSN else None

    def setup(self) -> None:
        with self._engine.begin() as connection:
            migrate_jobqueue(Operations(MigrationContext.configure(connection)), 0, LATEST)

    def reset(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(text("TRUNCATE jobqueue_jobs"))

    def bulk(self, n: int) -> float:
        with self._engine.connect() as connection:
            began = time.perf_counter()
            enqueue_many(connection, (enqueue(noop.call(i=i)) for i in range(n)))
            connection.commit()
            return time.perf_counter() - began

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Callable[[int], Any]]:
        def one(i: int) -> None:
            with Session(self._engine) as session:
                session.add(enqueue(noop.call(i=i)))
                session.commit()

        yield one

    def worker(self) -> None:
        runner = Runner(jobs, self._engine, RunnerSettings(queues={"default": CONCURRENCY}))
        runner.start()
        threading.Event().wait()  # the harness ends the process


main(SaJobqueue())
