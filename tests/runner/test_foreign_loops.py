"""An async handler that takes the application's AsyncEngine is told so, and the application loses nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import URL, Engine, NullPool, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from sa_jobqueue import FinishedJob, JobContext, Registry, enqueue, never, wait_for
from sa_jobqueue.runner import Runner
from sa_jobqueue.testing import assert_enqueued
from tests.support.waiting import PATIENCE

Sessions = async_sessionmaker[AsyncSession]


async def _plainly(_ctx: JobContext, sessions: Sessions) -> None:
    async with sessions() as session:
        await session.execute(text("SELECT 1"))


async def _in_a_block(ctx: JobContext, sessions: Sessions) -> None:
    async with ctx.complete(sessions) as session:
        await session.execute(text("SELECT 1"))


def _registry(take: Callable[..., object], theirs: Sessions) -> Registry:
    jobs = Registry()
    jobs.provide(async_sessionmaker[AsyncSession], theirs)
    jobs.handler("take", retry=never())(take)
    return jobs


async def _run(engine: AsyncEngine, theirs: Sessions, take: Callable[..., object]) -> FinishedJob:
    """The job of an embedded runner whose handler takes `theirs`, enqueued by the application's sessions."""
    sessions = async_sessionmaker(engine)
    async with sessions.begin() as session:
        session.add(job := enqueue("take"))
    async with Runner(_registry(take, theirs), engine):
        assert job.enqueued
        return await wait_for(sessions, job.enqueued.id, timeout=timedelta(seconds=PATIENCE))


@pytest.fixture(params=["psycopg", "asyncpg"])
def url(request: pytest.FixtureRequest, engine: Engine) -> URL:
    return engine.url.set(drivername=f"postgresql+{request.param}")


@pytest.mark.parametrize("take", [_plainly, _in_a_block])
def test_the_applications_engine_is_refused_to_a_handler(
    engine: Engine, url: URL, take: Callable[..., object]
) -> None:
    async def host() -> None:
        own = create_async_engine(url)
        sessions = async_sessionmaker(own)
        end = await _run(own, sessions, take)
        assert end.last_error is not None, end.status
        assert "AsyncEngine that works on another event loop: an async handler" in end.last_error
        async with sessions.begin() as session:
            session.add(enqueue("later"))
        await own.dispose()

    asyncio.run(host())
    with Session(engine) as session:
        assert assert_enqueued(session, "later")


@pytest.mark.parametrize("take", [_plainly, _in_a_block])
def test_one_that_keeps_no_connection_is_for_every_loop(url: URL, take: Callable[..., object]) -> None:
    async def host() -> None:
        own = create_async_engine(url, poolclass=NullPool)
        end = await _run(own, async_sessionmaker(own), take)
        assert end.done, end.last_error
        await own.dispose()

    asyncio.run(host())


def test_an_engine_is_for_the_next_loop_when_its_own_has_ended(url: URL) -> None:
    async def leave() -> None:
        async with Runner(_registry(_plainly, async_sessionmaker(own)), own):
            pass
        await own.dispose()

    async def use() -> None:
        async with async_sessionmaker(own)() as session:
            assert await session.scalar(text("SELECT 1")) == 1
        await own.dispose()

    own = create_async_engine(url)
    asyncio.run(leave())
    asyncio.run(use())


def test_asyncpgs_connection_is_refused_where_no_runner_knows_the_engine(engine: Engine) -> None:
    """Else the commit that comes next on this connection writes nothing."""
    sessions = async_sessionmaker(create_async_engine(engine.url.set(drivername="postgresql+asyncpg")))

    async def elsewhere() -> None:
        async with sessions() as session:
            with pytest.raises(RuntimeError, match="asyncpg connection that works on another event loop"):
                await session.execute(text("SELECT 1"))

    async def host() -> None:
        async with sessions() as session:
            await session.execute(text("SELECT 1"))
        await asyncio.to_thread(asyncio.run, elsewhere())
        async with sessions.begin() as session:
            session.add(enqueue("later"))
        await sessions.kw["bind"].dispose()

    asyncio.run(host())
    with Session(engine) as session:
        assert assert_enqueued(session, "later")
