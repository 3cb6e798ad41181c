"""The trigger of the job table: who is told of new jobs, when, and what it may never cost an INSERT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, insert, text
from sqlalchemy.orm import Session

from sa_jobqueue import Job, enqueue, enqueue_many
from sa_jobqueue.names import LONGEST_NAME
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support.databases import fresh_database
from tests.support.hearing import Listener, listening, say_waiting

ONE = [""]
INSERT = "INSERT INTO jobqueue_jobs (kind) VALUES ('test')"


@pytest.fixture
def listener(database_url: str) -> Iterator[Listener]:
    """Somebody who listens; whether anybody waits is another matter."""
    with listening(database_url) as listener:
        yield listener


def by_flush(connection: Connection) -> None:
    with Session(connection) as session:
        session.add_all([enqueue("test"), enqueue("test")])
        session.flush()
        session.add(enqueue("test"))
        session.commit()


def by_copy(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy("COPY jobqueue_jobs (kind) FROM STDIN") as copy:
        copy.write(b"test\ntest\n")


WAYS: dict[str, Callable[[Connection], Any]] = {
    "flush": by_flush,
    "enqueue_many": lambda connection: enqueue_many(connection, (enqueue("test") for _ in range(1000))),
    "Core": lambda connection: connection.execute(insert(Job), [{"kind": "test"}] * 100),
    "COPY": by_copy,
    "raw SQL": lambda connection: [connection.exec_driver_sql(INSERT) for _ in range(100)],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_notification_per_transaction(
    engine: Engine, database_url: str, listener: Listener, way: Callable[[Connection], Any]
) -> None:
    """Many jobs, many statements, however they are written: one commit tells it once, with nothing in it."""
    say_waiting(database_url)
    with engine.begin() as connection:
        way(connection)
        assert listener.heard() == []
    assert listener.heard() == ONE


def test_nothing_while_nobody_waits(engine: Engine, database_url: str, listener: Listener) -> None:
    """All runners are busy, or one has said so long ago and was killed: a commit needs no lock for a NOTIFY."""
    for seconds in (None, -0.001):
        if seconds is not None:
            say_waiting(database_url, seconds=seconds)
        with engine.begin() as connection:
            connection.exec_driver_sql(INSERT)
        assert listener.heard() == []
    say_waiting(database_url, runner="another")
    with engine.begin() as connection:
        connection.exec_driver_sql(INSERT)
    assert listener.heard() == ONE


def test_a_rollback_tells_nothing(engine: Engine, database_url: str, listener: Listener) -> None:
    """What did not happen wakes nobody, neither a transaction nor a savepoint."""
    say_waiting(database_url)
    with engine.connect() as connection:
        connection.exec_driver_sql(INSERT)
        connection.rollback()
        with connection.begin(), connection.begin_nested() as savepoint:
            connection.exec_driver_sql(INSERT)
            savepoint.rollback()
    assert listener.heard() == []


@pytest.mark.parametrize(
    ("policy", "waiting", "told"),
    [
        ("off", True, []),
        ("always", False, ONE),
        ("when-idle", False, []),
        ("when-idle", True, ONE),
        ("sometimes", True, ONE),
        ("", True, ONE),
        ("🐘" * 50, False, []),
    ],
)
def test_the_policy(
    engine: Engine, database_url: str, listener: Listener, policy: str, *, waiting: bool, told: list[str]
) -> None:
    """Off and always mean that; whatever else is set, a misspelling too, means when-idle and fails no INSERT."""
    if waiting:
        say_waiting(database_url)
    with engine.begin() as connection:
        connection.execute(text("SELECT set_config('sa_jobqueue.notify', :policy, true)"), {"policy": policy})
        connection.exec_driver_sql(INSERT)
    assert listener.heard() == told
    with engine.begin() as connection:  # it has ended with the transaction
        connection.exec_driver_sql(INSERT)
    assert listener.heard() == (ONE if waiting else [])


def test_the_policy_of_an_engine(database_url: str, listener: Listener) -> None:
    """An application that never wants to pay for it says so for its engine."""
    say_waiting(database_url)
    engine = create_engine(database_url, connect_args={"options": "-c sa_jobqueue.notify=off"})
    with engine.begin() as connection:
        connection.exec_driver_sql(INSERT)
    engine.dispose()
    assert listener.heard() == []


def test_the_policy_of_a_database(server: PostgresServer, template_database: str) -> None:
    """Whoever connects from then on has it."""
    with fresh_database(server, template=template_database) as url, listening(url) as listener:
        say_waiting(url)
        with connect(url) as connection:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET sa_jobqueue.notify = 'off'".encode())
            connection.execute(INSERT.encode())
        assert listener.heard() == ONE
        with connect(url) as connection:
            connection.execute(INSERT.encode())
        assert listener.heard() == []


def test_sizes_and_names(engine: Engine, database_url: str, listener: Listener) -> None:
    """A notification holds 8000 bytes, and nothing of a job is in it: not 20 MB, not 5,000 jobs, no name."""
    say_waiting(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO jobqueue_jobs (kind, payload) SELECT 'test', to_jsonb(repeat('🐘', 5000000))"
        )
        names = (f"{'🐘' * (LONGEST_NAME - 3)}{number:03}" for number in range(200))
        enqueue_many(connection, [enqueue(name, queue=name) for name in names for _ in range(25)])
    assert listener.heard() == ONE


def test_a_full_queue_of_notifications(server: PostgresServer, template_database: str) -> None:
    """Where a listener keeps the queue from being emptied, commits must not be what fails: above a half it is silent."""
    with fresh_database(server, template=template_database) as url, listening(url) as listener:
        say_waiting(url)
        for usage, told in (("0.51", []), ("0.49", ONE)):
            with connect(url) as connection:
                # Gigabytes of notifications would do it as well. Each time a new session: plans keep what the system has.
                connection.execute(
                    "CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS float8"
                    f" LANGUAGE sql AS 'SELECT {usage}::float8'".encode()
                )
                connection.execute(INSERT.encode())
            assert listener.heard() == told
