"""A database whose clock stands still until a test moves it, so that a model can know every time to the microsecond.

The statements stay as they are. Their `now()`, `statement_timestamp()` and `clock_timestamp()` are found in a schema that
comes before the server's own, and read a table there: what was the time at that real moment? So the start of a
transaction, the start of a statement and the present stay three different things while the clock is moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, NullPool, create_engine, make_url, text

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support.databases import fresh_database, install

MINUTE = timedelta(minutes=1)
#: Long after the start of the server, within a lease of which nobody is rescued.
START = datetime(2100, 1, 1, tzinfo=UTC)
_SCHEMA = f"""
    CREATE SCHEMA clock
    CREATE TABLE readings (since timestamptz PRIMARY KEY, reading timestamptz NOT NULL);
    INSERT INTO clock.readings VALUES ('-infinity', '{START}');
    CREATE FUNCTION clock.reading_at(moment timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN
        RETURN (SELECT reading FROM clock.readings WHERE since <= moment ORDER BY since DESC LIMIT 1);
    END $$;
"""
_FUNCTION = """
    CREATE FUNCTION clock.{name}() RETURNS timestamptz LANGUAGE plpgsql {volatility} AS $$ BEGIN
        RETURN clock.reading_at(pg_catalog.{name}());
    END $$;
"""
_FUNCTIONS = {"now": "STABLE", "statement_timestamp": "STABLE", "clock_timestamp": "VOLATILE"}
_MOVE = text("INSERT INTO clock.readings VALUES (pg_catalog.clock_timestamp(), :reading)")
_RESET = (
    "DELETE FROM jobqueue_jobs",
    "ALTER SEQUENCE jobqueue_jobs_id_seq RESTART",
    "DELETE FROM clock.readings WHERE since > '-infinity'",
)


@contextmanager
def clocked_database(server: PostgresServer) -> Iterator[Engine]:
    """An engine on a fresh database with the newest schema, whose clock stands at START. Nobody waits long for a lock."""
    with fresh_database(server) as url:
        database = make_url(url).database
        with connect(url) as connection:
            connection.execute(_SCHEMA.encode())
            for name, volatility in _FUNCTIONS.items():
                connection.execute(_FUNCTION.format(name=name, volatility=volatility).encode())
            # The server's own functions last; new tables go into the first.
            connection.execute(
                f"ALTER DATABASE {database} SET search_path = public, clock, pg_catalog".encode()
            )
            connection.execute(f"ALTER DATABASE {database} SET lock_timeout = '100ms'".encode())
        install(url)
        engine = create_engine(url, poolclass=NullPool)
        yield engine
        engine.dispose()


def move(connection: Connection, reading: datetime) -> None:
    """From now on the clock shows this."""
    connection.execute(_MOVE, {"reading": reading})


def reset(connection: Connection) -> None:
    """No job, the first id again, and START."""
    for statement in _RESET:
        connection.exec_driver_sql(statement)
