"""Sessions of every kind under the usual fixture: a transaction that is rolled back, whatever was committed in it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, func, make_url, select
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue.models import jobs as table

Answer = TypeVar("Answer")
JOINED: dict[str, Any] = {"join_transaction_mode": "create_savepoint", "expire_on_commit": False}


@dataclass
class Place:
    """One way to talk to the database. `run` gives a scenario this place, within a transaction that is rolled back.

    Scenarios are async functions that pass what the kit answers to `told()`; over a sync session they never wait, and no
    event loop runs. `session` is the test's own; `make` makes sync sessions, as handlers have them; `make_async` async
    ones.
    """

    kind: str
    engine: Engine
    session: Any = None
    connection: Any = None
    make: sessionmaker[Session] = field(default_factory=sessionmaker)
    make_async: async_sessionmaker[AsyncSession] = field(default_factory=async_sessionmaker)

    def run(self, scenario: Callable[[Place], Coroutine[Any, Any, Answer]]) -> Answer:
        url = self.engine.url
        if self.kind in ("sync", "psycopg2"):
            driver = "psycopg" if self.kind == "sync" else self.kind
            engine = create_engine(url.set(drivername=f"postgresql+{driver}"), poolclass=NullPool)
            with engine.connect() as connection:
                answer = self._run_sync(connection, scenario)
        else:
            answer = asyncio.run(self._run_async(make_url(url), scenario))
        with self.engine.connect() as connection:
            assert connection.scalar(select(func.count()).select_from(table)) == 0, "something was committed"
        return answer

    def _run_sync(
        self, connection: Connection, scenario: Callable[[Place], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        transaction = connection.begin()
        self.connection = connection
        self.make.configure(bind=connection, **JOINED)
        with self.make() as self.session:
            try:
                scenario(self).send(None)
            except StopIteration as stop:
                answer: Answer = stop.value
        assert transaction.is_active, "the transaction was ended"
        transaction.rollback()
        return answer

    async def _run_async(self, url: Any, scenario: Callable[[Place], Coroutine[Any, Any, Answer]]) -> Answer:
        engine = create_async_engine(url.set(drivername=f"postgresql+{self.kind}"), poolclass=NullPool)
        connection: AsyncConnection
        async with engine.connect() as connection:
            transaction = await connection.begin()
            self.connection = connection
            self.make.configure(bind=connection.sync_connection, **JOINED)
            self.make_async.configure(bind=connection, **JOINED)
            async with self.make_async() as self.session:
                answer = await scenario(self)
            assert transaction.is_active, "the transaction was ended"
            await transaction.rollback()
        return answer


async def told(answer: Any) -> Any:
    """What was answered at once, or by an awaitable."""
    return await answer if inspect.isawaitable(answer) else answer


@pytest.fixture
def database_url(application_url: str) -> str:
    """Every database here also has the application's tables."""
    return application_url


@pytest.fixture
def application(engine: Engine) -> Engine:
    """The engine of a database that also has the application's tables."""
    return engine


@pytest.fixture(params=["sync", "psycopg2", "psycopg", "asyncpg"])
def place(request: pytest.FixtureRequest, application: Engine) -> Place:
    """Session over psycopg and psycopg2, AsyncSession over psycopg and asyncpg."""
    return Place(request.param, application)


@pytest.fixture
def sync_place(application: Engine) -> Place:
    """For what no driver changes."""
    return Place("sync", application)
