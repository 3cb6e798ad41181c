"""drain() where something is in its way: handlers that use the test's own session, broken transactions, event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, select, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session

from sa_jobqueue import Job, Registry, enqueue, ref
from sa_jobqueue.models import jobs as table
from sa_jobqueue.testing import Drained, DrainError, drain
from tests.entry.application import Document
from tests.testing.conftest import Place


def statuses(place: Place) -> list[str]:
    return list(place.connection.execute(select(table.c.status).order_by(table.c.id)).scalars())


def test_a_scoped_session_may_be_the_handlers_own_too(sync_place: Place) -> None:
    """What the handler commits is a savepoint of the test's transaction; the follow-up is in it."""
    jobs = Registry()
    scoped: scoped_session[Session] = scoped_session(sync_place.make)

    @jobs.handler("title")
    def title(document_id: int) -> None:
        scoped.get_one(Document, document_id).title = "seen"
        scoped.add(enqueue("after"))
        scoped.commit()

    jobs.handler("after")(lambda: None)

    async def scenario(place: Place) -> None:
        document = Document(title="news")
        scoped.add_all([document, enqueue(title.call(document_id=ref(document)))])
        assert drain(scoped, jobs) == Drained(done=2)
        assert scoped.scalar(select(Document.title)) == "seen"
        scoped.remove()

    sync_place.run(scenario)


def test_a_handler_that_rolls_back_the_test_is_explained(sync_place: Place) -> None:
    """The claim was in what it rolled back: nothing can be settled, and the message has the cure."""
    jobs = Registry()

    @jobs.handler("k")
    def k() -> None:
        sync_place.session.rollback()
        raise KeyError("its own failure")

    async def scenario(place: Place) -> None:
        place.session.add(enqueue("k"))
        with pytest.raises(
            DrainError, match=r"job \d+ \(k\): its handler has rolled back .*'create_savepoint'"
        ) as caught:
            drain(place.session, jobs)
        assert isinstance(caught.value.__cause__, KeyError)

    sync_place.run(scenario)


def test_a_transaction_that_a_handler_left_aborted_is_explained(sync_place: Place) -> None:
    """A statement of its own that failed on the bare connection: PostgreSQL takes no other until a rollback."""
    jobs = Registry()

    @jobs.handler("k")
    def k() -> None:
        sync_place.connection.execute(text("SELECT 1/0"))

    async def scenario(place: Place) -> None:
        with place.connection.begin_nested() as savepoint:
            place.connection.execute(table.insert().values(kind="k"))
            with pytest.raises(
                DrainError, match=r"\(k\): its handler has left .* aborted.*'create_savepoint'"
            ) as caught:
                drain(place.connection, jobs)
            assert "division by zero" in str(caught.value.__cause__)
            savepoint.rollback()

    sync_place.run(scenario)


def test_what_ends_a_test_passes_through(sync_place: Place) -> None:
    """KeyboardInterrupt and pytest's own outcomes are no failures of the handler."""
    jobs = Registry()

    @jobs.handler("k")
    def k() -> None:
        pytest.skip("from a stand-in deep inside")

    async def scenario(place: Place) -> None:
        place.session.add(enqueue("k"))
        with pytest.raises(pytest.skip.Exception):
            drain(place.session, jobs, raise_errors=False)
        assert statuses(place) == ["running"]

    sync_place.run(scenario)


def test_async_handlers_run_without_a_loop_of_the_callers(sync_place: Place) -> None:
    """One loop for all of a drain, closed at its end."""
    jobs = Registry()
    loops = []

    @jobs.handler("k")
    async def k() -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("k"), enqueue("k")])
        assert drain(place.session, jobs) == Drained(done=2)

    sync_place.run(scenario)
    assert len(set(loops)) == 1
    assert loops[0].is_closed()


def test_a_forgotten_await_is_explained(application: Engine) -> None:
    """A sync session inside a running loop: the job is given back, and the message says what to type."""
    jobs = Registry()

    @jobs.handler("k")
    async def k() -> None: ...

    async def main() -> None:
        with application.connect() as connection, Session(connection) as session:
            session.add(enqueue("k"))
            with pytest.raises(
                RuntimeError, match=r"'k' has an async handler.*`await drain\(async_session, registry\)`"
            ):
                drain(session, jobs)
            assert session.execute(select(Job.status, Job.attempts, Job.returned)).all() == [("ready", 1, 1)]
            assert await asyncio.to_thread(drain, session, jobs) == Drained(done=1)

    asyncio.run(main())


def test_an_async_handler_has_a_task_of_its_own(application: Engine) -> None:
    """As in a runner: a session scoped to the task is not the test's, and what it cancels is not the test."""
    jobs = Registry()
    scoped: Any = None

    @jobs.handler("k")
    async def k() -> None:
        assert not list(scoped())
        task = asyncio.current_task()
        assert task is not None
        scoped().add(Document(title="lost"))
        await scoped.remove()

    async def main() -> None:
        nonlocal scoped
        engine = create_async_engine(application.url, poolclass=NullPool)
        async with engine.connect() as connection:
            scoped = async_scoped_session(
                lambda: AsyncSession(connection, join_transaction_mode="create_savepoint"),  # type: ignore[arg-type]
                scopefunc=asyncio.current_task,
            )
            scoped.add_all([document := Document(title="kept"), enqueue("k")])
            assert await drain(scoped, jobs) == Drained(done=1)
            assert (await scoped.scalars(select(Document.title))).all() == ["kept"]
            assert document in scoped
            await scoped.remove()
            await connection.rollback()

    asyncio.run(main())


def test_a_cancelled_drain_cancels_its_handler(application: Engine) -> None:
    """A timeout around the drain ends the handler as well, and nothing is settled."""
    jobs = Registry()
    ended = []
    limits: list[asyncio.Timeout] = []

    @jobs.handler("k")
    async def k() -> None:
        limits[0].reschedule(0)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def limited(draining: Awaitable[object]) -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            await draining

    async def main() -> None:
        engine = create_async_engine(application.url, poolclass=NullPool)
        async with AsyncSession(engine) as session:
            session.add(enqueue("k"))
            with pytest.raises(TimeoutError):
                await limited(drain(session, jobs))

    asyncio.run(main())
    assert ended == [True]


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    """The message names the argument."""
    jobs = Registry()
    engine = create_engine("postgresql+psycopg://nobody@nowhere/none")
    with pytest.raises(TypeError, match=r"drain\(\): expected a Session, .* got Engine"):
        drain(engine, jobs)  # type: ignore[call-overload]
    session = Session(engine)
    with pytest.raises(TypeError, match="expected a Registry second, got str"):
        drain(session, "jobs")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="limit: 0 is below 1"):
        drain(session, jobs, limit=0)
    with pytest.raises(TypeError, match=r"queues: expected several, got 'ai' alone: write \['ai'\]"):
        drain(session, jobs, queues="ai")
