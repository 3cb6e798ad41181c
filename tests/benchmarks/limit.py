"""The server's own limit: the least that a queue with leases has to do, written by hand on psycopg, without a queue.

One thread claims a hundred rows under a token, calls the handler for each and records all hundred with one UPDATE. No
retries, no renewals, no rescue, no concurrency: a ruler, not a product. `python -m tests.benchmarks.limit URL` drains the
table and ends when its input does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg

from sa_jobqueue.testing.server import connect
from tests.benchmarks.noop import handle

BATCH = 100

TABLE = """
    CREATE TABLE limit_jobs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        kind text NOT NULL,
        payload jsonb NOT NULL,
        status text NOT NULL DEFAULT 'ready',
        run_at timestamptz NOT NULL DEFAULT now(),
        attempts int NOT NULL DEFAULT 0,
        max_attempts int NOT NULL DEFAULT 5,
        token uuid,
        lease_until timestamptz,
        unique_key text UNIQUE,
        created_at timestamptz NOT NULL DEFAULT now(),
        finished_at timestamptz,
        CHECK (status IN ('ready', 'running', 'done', 'dead'))
    )
"""
INDEXES = (
    "CREATE INDEX limit_jobs_due ON limit_jobs (run_at, id) WHERE status = 'ready'",
    "CREATE INDEX limit_jobs_leased ON limit_jobs (lease_until) WHERE status = 'running'",
)
FILL = """
    INSERT INTO limit_jobs (kind, payload)
    SELECT 'noop', jsonb_build_object('number', number) FROM generate_series(0, %s - 1) AS number
"""
CLAIM = """
    UPDATE limit_jobs
    SET status = 'running', attempts = attempts + 1, token = %s, lease_until = now() + interval '1 minute'
    WHERE id = ANY(ARRAY(
        SELECT id FROM limit_jobs WHERE status = 'ready' AND run_at <= now()
        ORDER BY run_at, id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, kind, payload, attempts
"""
FINISH = """
    UPDATE limit_jobs SET status = 'done', finished_at = now(), token = NULL, lease_until = NULL
    WHERE id = ANY(%s) AND token = %s
"""
UNFINISHED = "SELECT count(*) FROM limit_jobs WHERE status <> 'done'"


def create(connection: psycopg.Connection[Any]) -> None:
    """Make the table."""
    for statement in (TABLE, *INDEXES):
        connection.execute(statement)


def fill(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Put jobs in, numbered from 0."""
    connection.execute(FILL, [jobs])


def drain(connection: psycopg.Connection[Any], handler: Callable[[int], None]) -> None:
    """Run every job there is; returns when none is left."""
    while True:
        token = uuid4()
        rows = connection.execute(CLAIM, [token, BATCH]).fetchall()
        if not rows:
            return
        for _, _, payload, _ in rows:
            handler(payload["number"])
        connection.execute(FINISH, [[row[0] for row in rows], token])


if __name__ == "__main__":
    with connect(sys.argv[1]) as own:
        drain(own, handle)
        sys.stdin.read()
