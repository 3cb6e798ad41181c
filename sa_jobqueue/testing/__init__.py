"""Tools for tests: which jobs are enqueued, all due jobs run now, one handler alone, a throw-away PostgreSQL.

    assert_enqueued(session, send_receipt, {"order_id": 7})     and refute_enqueued(), all_enqueued()
    assert drain(session, jobs) == Drained(done=1)              runs what is due, follow-up jobs too
    assert perform(send_receipt.call(order_id=7)).status == "done"      one run, no database

What a failed assertion shows, and the repr of a job that was found, holds payloads as they are, secrets too: a test has
put them there, and asks what is different.

They work inside the transaction of the session or connection that they are given, sync or async (`await
drain(async_session, jobs)`), and commit nothing: a fixture that rolls back takes every job along. Handlers see what is
not committed only in sessions on the same connection, so that the fixture binds the application's own sessionmaker to
it:

    # conftest.py
    import pytest
    from sqlalchemy import create_engine

    import sa_jobqueue
    from shop import Base, make_session  # make_session = sessionmaker(), which handlers use as well


    @pytest.fixture(scope="session")
    def engine(jobqueue_database_url):
        engine = create_engine(jobqueue_database_url)
        sa_jobqueue.metadata.create_all(engine)  # or your migrations for both: alembic upgrade head
        Base.metadata.create_all(engine)
        yield engine
        engine.dispose()


    @pytest.fixture
    def session(engine):
        with engine.connect() as connection:
            transaction = connection.begin()
            make_session.configure(bind=connection, join_transaction_mode="create_savepoint")
            with make_session() as session:
                yield session
            transaction.rollback()

    # test_shop.py
    from sa_jobqueue.testing import Drained, assert_enqueued, drain
    from shop import Order, jobs, place_order, send_receipt


    def test_an_order_gets_its_receipt(session):
        order = place_order(session, "ada@example.org")
        assert_enqueued(session, send_receipt, {"order_id": order.id}, key="receipt:ada@example.org")
        assert drain(session, jobs) == Drained(done=1)
        assert order.receipt == "receipt for ada@example.org"

A handler that says `with ctx.complete() as session:` gets its session from the drain, on the same connection; under
`perform()` it is the test's own: `perform(send_receipt.call(order_id=7), session=session)`.

With `create_savepoint` a commit or rollback of the application's ends a savepoint, and only the fixture ends the
transaction. Async tests have the same with `async_sessionmaker` and async handlers; the engine is one per test, as is
the event loop:

    @pytest_asyncio.fixture
    async def async_session(engine, jobqueue_database_url):  # `engine` has made the tables
        async_engine = create_async_engine(jobqueue_database_url)
        async with async_engine.connect() as connection:
            transaction = await connection.begin()
            make_async_session.configure(bind=connection, join_transaction_mode="create_savepoint")
            async with make_async_session() as session:
                yield session
            await transaction.rollback()
        await async_engine.dispose()

    await assert_enqueued(async_session, send_receipt)
    assert await drain(async_session, jobs) == Drained(done=1)
    assert (await perform_async(send_receipt.call(order_id=7))).status == "done"

The fixture `jobqueue_database_url` comes with the package: an empty database for the whole run, on a server of
`start_postgres()`.

Nothing here is needed in production.
"""

from __future__ import annotations

from sa_jobqueue.testing._attempts import Performed
from sa_jobqueue.testing._drain import drain
from sa_jobqueue.testing._drained import Drained, DrainError
from sa_jobqueue.testing._enqueued import all_enqueued, assert_enqueued, refute_enqueued
from sa_jobqueue.testing._filters import Filters, StoredJob
from sa_jobqueue.testing._perform import RunOptions, perform, perform_async
from sa_jobqueue.testing.postgres import PostgresSource, find_postgres, start_postgres
from sa_jobqueue.testing.server import PostgresServer, PostgresUnavailableError, StopMode

__all__ = [
    "DrainError",
    "Drained",
    "Filters",
    "Performed",
    "PostgresServer",
    "PostgresSource",
    "PostgresUnavailableError",
    "RunOptions",
    "StopMode",
    "StoredJob",
    "all_enqueued",
    "assert_enqueued",
    "drain",
    "find_postgres",
    "perform",
    "perform_async",
    "refute_enqueued",
    "start_postgres",
]
