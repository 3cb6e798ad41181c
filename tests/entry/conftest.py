"""Sessions of every kind over a fresh database with the application's tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

Answer = TypeVar("Answer")


@dataclass
class Client:
    """One way to talk to the database; `run` hands a Session to the function and commits afterwards.

    "sync" is psycopg 3, "psycopg2" is sync as well, "psycopg" and "asyncpg" are async.
    """

    kind: str
    url: str

    def _engine(self) -> Engine:
        driver = "psycopg" if self.kind == "sync" else self.kind
        return create_engine(make_url(self.url).set(drivername=f"postgresql+{driver}"))

    def run(self, work: Callable[[Session], Answer], **options: Any) -> Answer:
        if self.kind in ("sync", "psycopg2"):
            engine = self._engine()
            try:
                with Session(engine, **options) as session:
                    answer = work(session)
                    session.commit()
                    return answer
            finally:
                engine.dispose()

        async def main() -> Answer:
            engine = create_async_engine(make_url(self.url).set(drivername=f"postgresql+{self.kind}"))
            try:
                async with AsyncSession(engine, **options) as session:
                    answer = await session.run_sync(work)
                    await session.commit()
                    return answer
            finally:
                await engine.dispose()

        return asyncio.run(main())

    def run_on_connection(self, work: Callable[[Any], Answer]) -> Answer:
        """As `run`, with a Connection."""
        if self.kind in ("sync", "psycopg2"):
            engine = self._engine()
            try:
                with engine.begin() as connection:
                    return work(connection)
            finally:
                engine.dispose()

        async def main() -> Answer:
            engine = create_async_engine(make_url(self.url).set(drivername=f"postgresql+{self.kind}"))
            try:
                connection: AsyncConnection
                async with engine.begin() as connection:
                    return await connection.run_sync(work)
            finally:
                await engine.dispose()

        return asyncio.run(main())


@pytest.fixture
def database_url(application_url: str) -> str:
    """Every database here also has the application's tables."""
    return application_url


@pytest.fixture
def application(engine: Engine) -> Engine:
    """The engine of a database that also has the application's tables."""
    return engine


@pytest.fixture
def session(application: Engine) -> Iterator[Session]:
    """An ordinary session."""
    with Session(application) as session:
        yield session


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for transactions at the same time."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture(params=["sync", "psycopg2", "psycopg", "asyncpg"])
def client(request: pytest.FixtureRequest, application: Engine) -> Client:
    """Session over psycopg and psycopg2, AsyncSession over psycopg and asyncpg."""
    return Client(request.param, application.url.render_as_string(hide_password=False))
