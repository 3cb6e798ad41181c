"""Two tables to plan on: a small one and a loaded one, analysed or never analysed; and EXPLAIN under a generic plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.sql.expression import ClauseElement

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support.databases import fresh_database

TOKEN = UUID("11111111-1111-4111-8111-111111111111")
QUEUES = 5
READY, DONE, DEAD, FUTURE, RUNNING, KEYED = 100, 300_000, 20_000, 50_000, 5_000, 10_000

NO_AUTOVACUUM = "ALTER TABLE jobqueue_jobs SET (autovacuum_enabled = false)"
FILL_READY = """
    INSERT INTO jobqueue_jobs (kind, queue, priority, run_at)
    SELECT 'test', 'q' || mod(i, 5), mod(i, 10), now() - make_interval(secs => i) FROM generate_series(1, %s) AS i
"""
FILL_FUTURE = """
    INSERT INTO jobqueue_jobs (kind, queue, priority, run_at)
    SELECT 'test', CASE WHEN mod(i, 10) = 0 THEN 'scheduled' ELSE 'q' || mod(i, 5) END, mod(i, 10), now() + interval '1 day'
    FROM generate_series(1, %s) AS i
"""
FILL_FINISHED = """
    INSERT INTO jobqueue_jobs (kind, queue, priority, status, run_at, attempts, finished_at)
    SELECT 'test', 'q' || mod(i, 5), mod(i, 10), %s, now() - interval '1 hour', 1,
        now() - make_interval(hours => %s) + make_interval(secs => i)
    FROM generate_series(1, %s) AS i
"""
FILL_RUNNING = """
    INSERT INTO jobqueue_jobs (kind, queue, status, attempts, lease_token, lease_until, leased_by)
    SELECT 'test', 'q' || mod(i, 5), 'running', 1, %s, now() + interval '1 day', 'runner'
    FROM generate_series(1, %s) AS i
"""
# Dead jobs whose key is free again, and as many ready ones that hold keys of their own.
FILL_KEYED = """
    INSERT INTO jobqueue_jobs
        (kind, queue, status, run_at, attempts, finished_at, idempotency_key, key_scope, unique_key)
    SELECT 'test', 'keyed', CASE WHEN held THEN 'ready' ELSE 'dead' END, now() + interval '1 day', 1,
        CASE WHEN NOT held THEN now() - interval '1 hour' END, 'key ' || held || i, 'unfinished',
        CASE WHEN held THEN 'key ' || held || i END
    FROM generate_series(1, %s) AS i, (VALUES (true), (false)) AS key (held)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What EXPLAIN (ANALYZE, BUFFERS) said about one run."""

    root: dict[str, Any]

    @property
    def nodes(self) -> list[dict[str, Any]]:
        found, todo = [], [self.root]
        while todo:
            node = todo.pop()
            found.append(node)
            todo += node.get("Plans", [])
        return found

    @property
    def buffers(self) -> int:
        """Shared buffers touched, by the whole statement."""
        return int(self.root["Shared Hit Blocks"]) + int(self.root["Shared Read Blocks"])

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def scanned(self) -> list[str]:
        """Tables that were read from one end to the other."""
        return [node["Relation Name"] for node in self.nodes if node["Node Type"] == "Seq Scan"]


@dataclass(frozen=True, slots=True)
class Table:
    """A database to plan on, with ids of some jobs: those that TOKEN holds, due ones, dead ones, dead ones with a key."""

    url: str
    ready: list[int]
    running: list[int]
    dead: list[int]
    keyed: list[int]

    def explain(self, statement: ClauseElement, parameters: dict[str, Any]) -> Plan:
        """Run the statement once under a generic plan, in a transaction that is rolled back."""
        # asyncpg's dialect writes $1, $2: that is what PREPARE takes.
        compiled = statement.compile(dialect=asyncpg.dialect())
        order = compiled.positiontup
        values = [{**compiled.params, **parameters}[name] for name in order]
        marks = ", ".join(["%s"] * len(values))
        with connect(self.url) as connection, connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            connection.execute("SET LOCAL jit = off")
            connection.execute(f"PREPARE planned AS {compiled}".encode())
            cursor = psycopg.ClientCursor(connection)
            explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE planned"
            cursor.execute(f"{explain}({marks})".encode() if values else explain.encode(), values)
            row = cursor.fetchone()
            assert row is not None
            connection.execute("DEALLOCATE planned")
        return Plan(row[0][0]["Plan"])


@pytest.fixture(scope="package")
def small(server: PostgresServer, template_database: str) -> Iterator[Table]:
    """100 ready jobs, 100 running ones and nothing else."""
    with fresh_database(server, template=template_database) as url:
        with connect(url) as connection:
            connection.execute(FILL_READY, [READY])
            connection.execute(FILL_RUNNING, [TOKEN, READY])
            connection.execute("VACUUM ANALYZE jobqueue_jobs")
        yield _table(url)


@pytest.fixture(scope="package")
def analysed(server: PostgresServer, template_database: str) -> Iterator[Table]:
    """The same ready jobs among a third of a million others, with statistics."""
    with fresh_database(server, template=template_database) as url:
        _load(url)
        with connect(url) as connection:
            connection.execute("VACUUM ANALYZE jobqueue_jobs")
        yield _table(url)


@pytest.fixture(scope="package")
def never_analysed(server: PostgresServer, template_database: str) -> Iterator[Table]:
    """The loaded table as a restored dump leaves it: no statistics at all."""
    with fresh_database(server, template=template_database) as url:
        _load(url)
        yield _table(url)


@pytest.fixture(params=["analysed", "never_analysed"])
def loaded(request: pytest.FixtureRequest) -> Table:
    """Both loaded tables, one after the other."""
    table: Table = request.getfixturevalue(request.param)
    return table


def _load(url: str) -> None:
    with connect(url) as connection:
        connection.execute(NO_AUTOVACUUM)
        # One finished each second: the done ones from five days ago on, the dead ones a year before them.
        connection.execute(FILL_FINISHED, ["done", 5 * 24, DONE])
        connection.execute(FILL_FINISHED, ["dead", 370 * 24, DEAD])
        connection.execute(FILL_FUTURE, [FUTURE])
        connection.execute(FILL_KEYED, [KEYED])
        connection.execute(FILL_RUNNING, [TOKEN, RUNNING])
        connection.execute(FILL_READY, [READY])


def _table(url: str) -> Table:
    with connect(url) as connection:

        def newest(condition: str) -> list[int]:
            query = f"SELECT id FROM jobqueue_jobs WHERE {condition} ORDER BY id DESC LIMIT 100"
            return [row[0] for row in connection.execute(query.encode())]

        return Table(
            url,
            ready=newest("status = 'ready' AND run_at <= now()"),
            running=newest("status = 'running'"),
            dead=newest("status = 'dead' AND idempotency_key IS NULL"),
            keyed=newest("status = 'dead' AND idempotency_key IS NOT NULL"),
        )
