"""One server for all tests; a database for each: as new, with the schema that our own migrations made."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, NullPool, create_engine

from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.testing import PostgresServer, start_postgres
from sa_jobqueue.testing.server import connect
from tests.support.reuse import Databases
from tests.support.waiting import PATIENCE, wait_until

_NUMBERS = itertools.count(1)
# Tests crash servers on purpose, but never the machine: what is lost with the machine need not be on disk.
# The log they write of it is kept small, since it may lie in memory.
FAST = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "128MB"}
OTHER_SESSIONS = """
    SELECT pid, application_name, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A running PostgreSQL. A test that halts or restarts one starts its own."""
    with start_postgres(settings=FAST) as running:
        yield running


@pytest.fixture(scope="session")
def template_database(server: PostgresServer) -> Iterator[str]:
    """The name of a database with the newest schema, to copy from. Nobody may stay connected to it."""
    name = new_name()
    server.create_database(name)
    try:
        install(server.url(name))
        yield name
    finally:
        server.drop_database(name)


@pytest.fixture(scope="session")
def databases(server: PostgresServer, template_database: str) -> Iterator[Databases]:
    """Databases with the newest schema, each used by one test at a time."""
    with reused_databases(server, template_database) as found:
        yield found


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """The URL of a database with the newest schema and nothing in it. The test may do to it what it likes."""
    with databases.one(fail_on_others) as url:
        yield url


@pytest.fixture
def empty_database_url(server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database with nothing in it."""
    with fresh_database(server) as url:
        yield url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine (psycopg) on a fresh database with the newest schema."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


def install(url: str) -> None:
    """The newest schema, made by our own migrations."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        migrate_jobqueue(Operations(MigrationContext.configure(connection)), 0, LATEST)


@contextmanager
def reused_databases(server: PostgresServer, template: str) -> Iterator[Databases]:
    """Copies of the template for one test after another, dropped at the end."""
    found = Databases(server, template, new_name)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def fresh_database(server: PostgresServer, *, template: str | None = None) -> Iterator[str]:
    """A database that is dropped afterwards; fails when somebody is still connected to it then."""
    name = new_name()
    server.create_database(name, template)
    try:
        yield server.url(name)
        fail_on_connections(server.url(name))
    finally:
        server.drop_database(name)


def fail_on_connections(url: str, timeout: float = PATIENCE) -> None:
    """Fail when anybody is connected to this database; a connection that was just closed gets time to go."""
    with connect(url) as connection:
        fail_on_others(connection, timeout)


def fail_on_others(connection: psycopg.Connection[Any], timeout: float = PATIENCE) -> None:
    """Fail when others are connected to the database of this connection."""
    try:
        wait_until(lambda: not connection.execute(OTHER_SESSIONS).fetchall(), timeout=timeout)
    except AssertionError:
        left = connection.execute(OTHER_SESSIONS).fetchall()
        lines = [f"  pid {pid} {name!r} {state}: {query}" for pid, name, state, query in left]
        pytest.fail("\n".join(["connections left over:", *lines]))


def new_name() -> str:
    """A name that no other run on the same server uses."""
    return f"sajq_test_{os.getpid()}_{next(_NUMBERS)}_{secrets.token_hex(3)}"
