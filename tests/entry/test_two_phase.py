"""Two-phase commit: PREPARE TRANSACTION refuses a transaction that notifies, so jobs in one wake nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, insert, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_jobqueue import Job, enqueue, enqueue_many
from tests.entry.application import Document

ALWAYS = {"options": "-c sa_jobqueue.notify=always"}
KINDS = text("SELECT kind FROM jobqueue_jobs ORDER BY id")


@pytest.fixture
def notifying(application: Engine) -> Any:
    """An engine on whose connections every INSERT of jobs notifies."""
    engine = create_engine(application.url, connect_args=ALWAYS)
    yield engine
    engine.dispose()


def kinds(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(KINDS).scalars())


def test_without_help_such_a_transaction_is_refused(notifying: Engine) -> None:
    """What the library protects from: an INSERT that goes past it notifies, and PostgreSQL refuses to prepare that."""
    with notifying.connect() as connection:
        connection.execute(insert(Job), {"kind": "raw"})
        with pytest.raises(DBAPIError, match="cannot PREPARE a transaction that has executed"):
            connection.exec_driver_sql("PREPARE TRANSACTION 'raw'")
    assert kinds(notifying) == []


def test_the_line_for_raw_sql(notifying: Engine) -> None:
    """The README's line for those who go past the library."""
    with notifying.connect() as connection:
        transaction = connection.begin_twophase()
        connection.execute(text("SELECT set_config('sa_jobqueue.notify', 'off', true)"))
        connection.execute(insert(Job), {"kind": "raw"})
        transaction.prepare()
        transaction.commit()
        # It ended with its transaction.
        assert (
            connection.execute(text("SELECT current_setting('sa_jobqueue.notify')")).scalar_one() == "always"
        )
    assert kinds(notifying) == ["raw"]


def test_a_session(notifying: Engine) -> None:
    """Jobs of several flushes, one of them in a savepoint that is rolled back and takes the setting along."""
    with Session(notifying, twophase=True) as session:
        session.add_all([Document(title="one"), enqueue("first")])
        session.flush()
        with session.begin_nested() as savepoint:
            session.add(enqueue("undone"))
            session.flush()
            savepoint.rollback()
        session.add(enqueue("second"))
        session.prepare()
        assert kinds(notifying) == []
        session.commit()
    assert kinds(notifying) == ["first", "second"]


def test_a_savepoint_alone(notifying: Engine) -> None:
    """The first jobs of the transaction are those of a savepoint that is rolled back."""
    with Session(notifying, twophase=True) as session:
        session.add(Document(title="one"))
        session.flush()
        with session.begin_nested() as savepoint:
            session.add(enqueue("undone"))
            session.flush()
            savepoint.rollback()
        session.add(enqueue("first"))
        session.commit()
    assert kinds(notifying) == ["first"]


def test_a_connection(notifying: Engine) -> None:
    """enqueue_many() on a Core connection, prepared by one connection and committed by another."""
    with notifying.connect() as connection:
        transaction = connection.begin_twophase()
        enqueue_many(connection, [enqueue("many") for _ in range(3)])
        transaction.prepare()
        xid = transaction.xid
        connection.invalidate()  # the client goes, the prepared transaction stays
    with notifying.connect() as other:
        assert other.recover_twophase() == [xid]
        other.commit_prepared(xid, recover=True)
    assert kinds(notifying) == ["many"] * 3


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_async_session(application: Engine, driver: str) -> None:
    """AsyncSession with two-phase commit."""
    arguments: dict[str, Any] = (
        ALWAYS if driver == "psycopg" else {"server_settings": {"sa_jobqueue.notify": "always"}}
    )

    async def main() -> None:
        url = application.url.set(drivername=f"postgresql+{driver}")
        engine = create_async_engine(url, connect_args=arguments)
        try:
            async with AsyncSession(engine, twophase=True) as session:
                session.add(enqueue("async"))
                await session.commit()
        finally:
            await engine.dispose()

    asyncio.run(main())
    assert kinds(application) == ["async"]


def test_an_ordinary_transaction_sends_nothing_for_it(application: Engine) -> None:
    """Only two-phase transactions pay for the setting."""
    sent: list[str] = []
    engine = create_engine(application.url)

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    with Session(engine) as session, session.begin():
        session.add(enqueue("plain"))
    engine.dispose()
    assert not [statement for statement in sent if "set_config" in statement]
