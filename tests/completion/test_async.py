"""The same for AsyncSession, on both drivers: `async with ctx.complete()` and `await ctx.complete_in()`."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import enqueue
from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.store.trouble import snapshot_too_old
from tests.completion.shapes import BODIES, WRITTEN
from tests.entry.application import Document
from tests.support.completions import Run, is_untouched, take_over, titles
from tests.support.jobs import read_job
from tests.support.locks import wait_for_a_lock
from tests.support.waiting import PATIENCE, wait_until

Work = Callable[[AsyncEngine], Awaitable[None]]


@pytest.fixture(params=["psycopg", "asyncpg"])
def driven(request: pytest.FixtureRequest, engine: Engine) -> Callable[[Work], None]:
    """Runs a handler with an engine of this driver, in an event loop."""

    @asynccontextmanager
    async def handlers() -> AsyncIterator[AsyncEngine]:
        handlers = create_async_engine(engine.url.set(drivername=f"postgresql+{request.param}"))
        try:
            yield handlers
        finally:
            await handlers.dispose()

    def run(work: Work) -> None:
        async def main() -> None:
            async with handlers() as engine:
                await work(engine)

        asyncio.run(main())

    return run


@pytest.mark.parametrize("shape", BODIES)
def test_a_block_lands(engine: Engine, run: Run, driven: Callable[[Work], None], shape: str) -> None:
    """Whatever way the commit takes."""

    async def handler(handlers: AsyncEngine) -> None:
        async with run.context.complete(async_sessionmaker(handlers), result=1) as session:
            await session.run_sync(BODIES[shape])

    driven(handler)
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, WRITTEN[shape])
    row = read_job(engine, run.job.id)
    assert (row.status, row.result) == ("done", 1)
    assert run.holder.told == ["begin", "fencing", "decided: landed"]


@pytest.mark.filterwarnings("ignore:coroutine 'complete_in' was never awaited")
def test_a_forgotten_await_commits_nothing(engine: Engine, run: Run, driven: Callable[[Work], None]) -> None:
    """Or the rows would land without the end of the job; the session is of use again after its rollback."""

    async def handler(handlers: AsyncEngine) -> None:
        async with AsyncSession(handlers) as session:
            session.add(Document(title="forgotten"))
            run.context.complete_in(session)  # type: ignore[unused-coroutine]
            with pytest.raises(RuntimeError, match=r"job \d+ .* was not awaited: await ctx\.complete_in"):
                await session.commit()
            await session.rollback()
            async with session.begin():
                session.add(Document(title="completed"))
                await run.context.complete_in(session)

    driven(handler)
    gc.collect()
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["completed"])
    assert read_job(engine, run.job.id).status == "done"


@pytest.mark.parametrize("shape", BODIES)
def test_a_lost_block_writes_nothing(
    engine: Engine, run: Run, driven: Callable[[Work], None], shape: str
) -> None:
    """Also when the handler swallows the error and commits again."""

    async def handler(handlers: AsyncEngine) -> None:
        async with run.context.complete(async_sessionmaker(handlers)) as session:
            for _ in range(2):
                try:
                    await session.run_sync(BODIES[shape])
                    await session.commit()
                except LeaseLostError:
                    pass
                except Exception:
                    await session.rollback()

    token = take_over_behind(engine, run)
    with pytest.raises(LeaseLostError):
        driven(handler)
    assert run.completion.fate is Fate.LOST
    assert is_untouched(engine, run.job.id, token[0])


def take_over_behind(engine: Engine, run: Run) -> list[Any]:
    """As soon as the completion has begun somebody else has the job."""
    token: list[Any] = []
    begin = run.holder.begin

    def begin_and_lose(completion: Any) -> None:
        begin(completion)
        token.append(take_over(engine, run.job.id))

    run.holder.begin = begin_and_lose  # type: ignore[method-assign]
    return token


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_isolation(engine: Engine, run: Run, driven: Callable[[Work], None], level: str) -> None:
    """Renewals are held before the snapshot; what changes the row after it wins."""

    async def handler(handlers: AsyncEngine) -> None:
        sessions = async_sessionmaker(handlers.execution_options(isolation_level=level))
        async with run.context.complete(sessions) as session:
            session.add(Document(title="no"))
            await session.flush()
            take_over(engine, run.job.id)

    with pytest.raises(DBAPIError) as raised:
        driven(handler)
    assert snapshot_too_old(raised.value)
    assert titles(engine) == []
    assert run.holder.told == ["begin", "hold_renewals", "fencing", "resume_renewals", "decided: undone"]


def test_a_session_of_the_handlers(engine: Engine, run: Run, driven: Callable[[Work], None]) -> None:
    """`await ctx.complete_in(session)`, for a scoped session too."""

    async def handler(handlers: AsyncEngine) -> None:
        scoped = async_scoped_session(async_sessionmaker(handlers), asyncio.current_task)
        async with scoped() as session:
            await run.context.complete_in(scoped)
            session.add_all([Document(title="mine"), enqueue("follow-up")])
            assert run.completion.fate is Fate.OPEN
            await session.commit()
        await scoped.remove()

    driven(handler)
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["mine"])


def test_the_event_loop_goes_on_while_the_lease_is_renewed(
    engine: Engine, run: Run, driven: Callable[[Work], None]
) -> None:
    """What may wait for the database waits in another thread."""
    go_on = threading.Event()
    threads: list[int] = []

    def slowly(call: Callable[[Any], None]) -> Callable[[Any], None]:
        def slow(completion: Any) -> None:
            assert go_on.wait(PATIENCE)
            go_on.clear()
            threads.append(threading.get_ident())
            call(completion)

        return slow

    run.holder.begin = slowly(run.holder.begin)  # type: ignore[method-assign]
    run.holder.hold_renewals = slowly(run.holder.hold_renewals)  # type: ignore[method-assign]

    async def handler(handlers: AsyncEngine) -> None:
        async def neighbour() -> None:
            while len(threads) < 2:
                go_on.set()
                await asyncio.sleep(0.01)

        task = asyncio.create_task(neighbour())
        sessions = async_sessionmaker(handlers.execution_options(isolation_level="SERIALIZABLE"))
        async with run.context.complete(sessions) as session:
            session.add(Document(title="yes"))
        await task

    driven(handler)
    assert threading.get_ident() not in threads
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["yes"])


def test_a_handler_cancelled_on_the_way_in_may_try_again(
    engine: Engine, run: Run, driven: Callable[[Work], None]
) -> None:
    """What its owner enters after that is undone already."""
    entering, go_on = threading.Event(), threading.Event()
    begin, entered = run.holder.begin, list[Completion]()

    def slow(completion: Completion) -> None:
        entering.set()
        assert go_on.wait(PATIENCE)
        begin(completion)
        entered.append(completion)

    run.holder.begin = slow  # type: ignore[method-assign]

    async def handler(handlers: AsyncEngine) -> None:
        async def work() -> None:
            async with run.context.complete(async_sessionmaker(handlers)) as session:
                session.add(Document(title="again"))

        task = asyncio.create_task(work())
        await asyncio.to_thread(entering.wait, PATIENCE)
        task.cancel()
        await asyncio.wait([task])
        go_on.set()
        await asyncio.to_thread(wait_until, lambda: entered)
        assert entered[0].fate is Fate.UNDONE
        run.holder.completion = None
        await work()

    driven(handler)
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["again"])


@pytest.mark.parametrize("at", ["in the body", "in the fence"])
def test_a_cancelled_handler_leaves_nothing_open(
    engine: Engine, run: Run, driven: Callable[[Work], None], at: str
) -> None:
    """Its session is closed and its row is free, however it ended."""

    async def handler(handlers: AsyncEngine) -> None:
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with run.context.complete(async_sessionmaker(handlers)) as session:
                session.add(Document(title="no"))
                await session.flush()
                entered.set()
                await go_on.wait()

        task = asyncio.create_task(work())
        await entered.wait()
        with engine.begin() as other:
            if at == "in the fence":  # which waits, for somebody has the row
                other.execute(text("SELECT 1 FROM jobqueue_jobs FOR UPDATE"))
                go_on.set()
                await asyncio.to_thread(wait_for_a_lock, engine)
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled()

    driven(handler)
    gc.collect()
    assert run.completion.fate is Fate.UNDONE
    assert isinstance(run.completion.error, asyncio.CancelledError)
    assert titles(engine) == []
    assert take_over(engine, run.job.id)


def test_sessions_of_our_own(engine: Engine, run: Run) -> None:
    """One engine per event loop, gone with it: handlers of the thread executor have a loop each."""

    async def handler() -> None:
        async with run.context.complete() as session:
            assert isinstance(session, AsyncSession)
            session.add(Document(title="own"))
            await session.flush()

    asyncio.run(handler())
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["own"])
    run.holder.completion = None
    take_over(engine, run.job.id)
    with pytest.raises(LeaseLostError):
        asyncio.run(handler())


def test_the_colour_of_the_session_is_that_of_the_block(
    engine: Engine, run: Run, driven: Callable[[Work], None]
) -> None:
    """The wrong one is told before anything is begun."""

    async def handler(handlers: AsyncEngine) -> None:
        with pytest.raises(TypeError, match=r"`with` is for Session, `async with` for AsyncSession"):
            run.context.complete(async_sessionmaker(handlers)).__enter__()  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="made Session"):
            await run.context.complete(sessionmaker(engine)).__aenter__()  # type: ignore[attr-defined]

    driven(handler)
    assert run.holder.told == []
