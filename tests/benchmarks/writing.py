"""Handlers that write one row each into the application's table: `sa-jobqueue run tests.benchmarks.writing:jobs`.

`own` commits in a session of its own and leaves the end of the job to the runner; `complete` does both in one
transaction. `python -m tests.benchmarks.writing URL` is the ruler: the same transaction on psycopg, by hand, in as many
threads. With `session` behind it, the transaction is one of a Session, which is what a handler's own code costs without
any runner. Each process speaks as that of `noop` does.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sa_jobqueue.context import JobContext
from sa_jobqueue.registry import Registry
from sa_jobqueue.testing.server import connect
from tests.benchmarks.limit import BATCH, CLAIM
from tests.benchmarks.noop import note_begin, note_end

AT_ONCE = 10
TABLE = "CREATE TABLE written (number bigint)"
WRITE = text("INSERT INTO written (number) VALUES (:number)")
FINISH = """
    UPDATE limit_jobs SET status = 'done', finished_at = now(), token = NULL, lease_until = NULL
    WHERE id = {id} AND token = {token} AND lease_until > clock_timestamp()
"""
FINISH_ON_PSYCOPG = FINISH.format(id="%s", token="%s")
FINISH_IN_SESSION = text(FINISH.format(id=":id", token=":token"))
jobs = Registry()


@cache
def _engine() -> Engine:
    return create_engine(os.environ["BENCH_URL"], pool_size=AT_ONCE)


@jobs.handler("own")
def own(number: int) -> None:
    """Two transactions: the row, and later the end of the job, in a batch with others."""
    note_begin()
    with Session(_engine()) as session, session.begin():
        session.execute(WRITE, {"number": number})
    note_end(number)


@jobs.handler("complete")
def complete(ctx: JobContext, number: int) -> None:
    """One transaction."""
    note_begin()
    with ctx.complete() as session:
        session.execute(WRITE, {"number": number})
    note_end(number)


class _ByHand:
    """One claiming connection, and one for each thread that writes."""

    def __init__(self, url: str, *, in_session: bool) -> None:
        self._url = url
        self._finish = self._in_session if in_session else self._on_psycopg
        self._own = threading.local()

    def drain(self) -> None:
        with connect(self._url) as connection, ThreadPoolExecutor(AT_ONCE) as pool:
            token = uuid4()
            while rows := connection.execute(CLAIM, [token, BATCH]).fetchall():
                list(pool.map(lambda row, token=token: self._write(row, token), rows))
                token = uuid4()

    def _write(self, row: Any, token: UUID) -> None:
        note_begin()
        number = row[2]["number"]
        if self._finish(number, row[0], token) != 1:
            raise AssertionError(f"job {row[0]} was lost")
        note_end(number)

    def _on_psycopg(self, number: int, job_id: int, token: UUID) -> int:
        connection: psycopg.Connection[Any] | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = connect(self._url)
        with connection.transaction():
            connection.execute("INSERT INTO written (number) VALUES (%s)", [number])
            return connection.execute(FINISH_ON_PSYCOPG, [job_id, token]).rowcount

    def _in_session(self, number: int, job_id: int, token: UUID) -> int:
        with Session(_engine()) as session, session.begin():
            session.execute(WRITE, {"number": number})
            finished: Any = session.execute(FINISH_IN_SESSION, {"id": job_id, "token": token})
            return int(finished.rowcount)


if __name__ == "__main__":
    _ByHand(sys.argv[1], in_session="session" in sys.argv[2:]).drain()
    sys.stdin.read()
