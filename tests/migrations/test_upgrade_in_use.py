"""From version 1 to 2 while the application goes on: what waits for what, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.migrations import migrate_jobqueue
from tests.support.catalogue import everything
from tests.support.hearing import listening, say_waiting
from tests.support.locks import in_thread, wait_for_a_lock

INSERT = text("INSERT INTO jobqueue_jobs (kind) VALUES ('test')")
COUNT = text("SELECT count(*) FROM jobqueue_jobs")


@pytest.fixture
def first(empty_database_url: str) -> Iterator[Engine]:
    """A database with version 1 of the tables and a job in it."""
    engine = create_engine(empty_database_url)
    migrate(engine, 0, 1)
    with engine.begin() as connection:
        connection.execute(INSERT)
    yield engine
    engine.dispose()


def migrate(engine: Engine, from_version: int, to_version: int, *before: str) -> None:
    with engine.begin() as connection:
        for statement in before:
            connection.exec_driver_sql(statement)
        migrate_jobqueue(Operations(MigrationContext.configure(connection)), from_version, to_version)


def add(engine: Engine) -> bool:
    with engine.begin() as connection:
        connection.execute(INSERT)
    return True


def count(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(COUNT).scalar_one())


def test_an_upgrade_waits_for_open_transactions_and_loses_no_job(
    first: Engine, empty_database_url: str
) -> None:
    """It comes after a producer's open transaction; its job is there, and the next one is told."""
    with first.connect() as producer:
        producer.execute(INSERT)
        upgrade, _ = in_thread(lambda: migrate(first, 1, 2))
        wait_for_a_lock(first)
        producer.commit()
    upgrade.join()
    say_waiting(empty_database_url)
    with listening(empty_database_url) as listener:
        add(first)
        assert listener.heard() == [""]
    assert count(first) == 3


def test_a_lock_timeout_lets_producers_through(first: Engine, empty_database_url: str) -> None:
    """README's advice: with it the step fails and changes nothing, and whoever waited behind it goes on."""
    before = everything(empty_database_url)
    with first.connect() as producer:
        producer.execute(INSERT)
        with pytest.raises(DBAPIError, match="lock timeout"):
            migrate(first, 1, 2, "SET LOCAL lock_timeout = '50ms'")
        assert everything(empty_database_url) == before
        assert add(first)
        producer.commit()
    migrate(first, 1, 2, "SET LOCAL lock_timeout = '5s'")
    assert count(first) == 3


def test_a_producer_waits_for_the_end_of_the_upgrade(first: Engine) -> None:
    """An INSERT during the step waits and then works: its statement knows nothing of versions."""
    with first.begin() as upgrading:
        migrate_jobqueue(Operations(MigrationContext.configure(upgrading)), 1, 2)
        producer, answers = in_thread(lambda: add(first))
        wait_for_a_lock(first)
    producer.join()
    assert answers == [True]
    assert count(first) == 2


def test_the_way_back_keeps_the_jobs(first: Engine, empty_database_url: str) -> None:
    """Down to 1 and nothing else is as before, jobs included; and up again."""
    before = everything(empty_database_url)
    for _ in range(2):
        migrate(first, 1, 2)
        assert everything(empty_database_url) != before
        migrate(first, 2, 1)
        assert everything(empty_database_url) == before
    assert count(first) == 1
