"""ctx.complete() under perform(): the test's own session, or the handler's, and no fence; for there is no job."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, scoped_session

from sa_jobqueue import JobContext, Registry, fixed
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.testing import perform, perform_async
from tests.entry.application import Document
from tests.testing.conftest import Place

jobs = Registry()


class HandlerError(Exception):
    """What a handler of these tests raises."""


@jobs.handler("title", retry=fixed(timedelta(hours=1)))
def title(ctx: JobContext, mode: str = "ends") -> str | None:
    """Writes a document in a block, then does what it is told to."""
    try:
        with ctx.complete(result={1, 2} if mode == "odd result" else [1]) as session:
            session.add(Document(title="new"))
            session.flush()
            assert session.scalars(select(Document.title)).all() == ["new"]
            if mode in ("fails", "swallows"):
                raise HandlerError("no")
    except HandlerError:
        if mode == "fails":
            raise
    if mode == "fails afterwards":
        raise HandlerError("afterwards")
    if mode == "twice":
        ctx.complete_in(session)
    return "returned"


@jobs.handler("title.async")
async def title_async(ctx: JobContext, fails: bool = False) -> None:
    """The same for `async with`."""
    async with ctx.complete() as session:
        session.add(Document(title="new"))
        await session.flush()
        if fails:
            raise HandlerError("no")


def _titles(session: Any) -> list[str]:
    return list(session.scalars(select(Document.title)).all())


@pytest.mark.parametrize("scoped", [False, True], ids=["Session", "scoped_session"])
def test_the_block_gives_the_tests_session(sync_place: Place, scoped: bool) -> None:
    """Its writes are there for the test to look at, and nothing is committed; what is returned is told as ever."""

    async def scenario(place: Place) -> None:
        session: Any = scoped_session(place.make) if scoped else place.session
        run = perform(title.call(), session=session)
        assert (run.verb, run.status, run.returned) == ("complete", "done", "returned")
        assert _titles(session) == ["new"]
        if scoped:
            session.remove()

    sync_place.run(scenario)


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_async_handlers_get_the_tests_async_session(application: Any, kind: str) -> None:
    """With `await perform_async(...)`, as every async handler in a running loop."""

    async def scenario(place: Place) -> None:
        run = await perform_async(title_async.call(), session=place.session)
        assert run.status == "done"
        assert (await place.session.scalars(select(Document.title))).all() == ["new"]
        with pytest.raises(HandlerError):
            await perform_async(title_async.call(fails=True), session=place.session)
        assert (await place.session.scalars(select(Document.title))).all() == ["new"]

    Place(kind, application).run(scenario)


def test_a_block_that_fails_is_rolled_back(sync_place: Place) -> None:
    """To a savepoint, so that the test's own rows stay; a swallowed failure is one all the same."""

    async def scenario(place: Place) -> None:
        place.session.add(mine := Document(title="mine"))
        place.session.flush()
        place.session.delete(mine)
        with pytest.raises(HandlerError, match="no"):
            perform(title.call(mode="fails"), session=place.session)
        swallowed = perform(title.call(mode="swallows"), session=place.session, raise_errors=False)
        assert (swallowed.verb, swallowed.status) == ("retry", "ready")
        assert isinstance(swallowed.exception, HandlerError)
        assert _titles(place.session) == []

    sync_place.run(scenario)


def test_after_a_block_the_job_is_done(sync_place: Place) -> None:
    """Whatever the handler does then; its error is told."""

    async def counted(place: Place) -> None:
        run = perform(title.call(mode="fails afterwards"), session=place.session, raise_errors=False)
        assert (run.verb, run.status, str(run.exception)) == ("complete", "done", "afterwards")

    async def raised(place: Place) -> None:
        with pytest.raises(HandlerError, match="afterwards"):
            perform(title.call(mode="fails afterwards"), session=place.session)
        assert _titles(place.session) == ["new"]

    sync_place.run(counted)
    sync_place.run(raised)


def test_what_a_runner_refuses_is_refused(sync_place: Place) -> None:
    """A lost job, a second completion, a result that no JSON holds."""

    async def scenario(place: Place) -> None:
        with pytest.raises(LeaseLostError, match="the lease is lost"):
            perform(title.call(), session=place.session, lost=True)
        with pytest.raises(TypeError, match="set is no JSON type"):
            perform(title.call(mode="odd result"), session=place.session)
        with pytest.raises(RuntimeError, match="second completion"):
            perform(title.call(mode="twice"), session=place.session)

    sync_place.run(scenario)


def test_without_a_session_it_says_what_to_pass() -> None:
    """There is no database: the error names the three ways."""
    with pytest.raises(
        RuntimeError, match=r"needs a session, .* pass the test's own as session=.*sessionmaker.*drain\(\)"
    ):
        perform(title.call())


def test_the_handlers_own_sessions_need_no_other(sync_place: Place) -> None:
    """Made by its function, or joined by complete_in(): committed as it says, here within the test's transaction."""
    registry = Registry()

    @registry.handler("factory")
    def factory(ctx: JobContext) -> None:
        with ctx.complete(sync_place.make) as session:
            session.add(Document(title="factory"))

    @registry.handler("in")
    def joined(ctx: JobContext) -> None:
        with sync_place.make() as session, session.begin():
            ctx.complete_in(session)
            session.add(Document(title="in"))

    async def scenario(place: Place) -> None:
        assert perform(factory.call()).status == "done"
        assert perform(joined.call()).status == "done"
        assert sorted(_titles(place.session)) == ["factory", "in"]

    sync_place.run(scenario)


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_async_handlers_own_sessions_need_no_other(application: Any, kind: str) -> None:
    """The same for async_sessionmaker and `await ctx.complete_in(session)`."""
    registry, place = Registry(), Place(kind, application)

    @registry.handler("factory")
    async def factory(ctx: JobContext) -> None:
        async with ctx.complete(place.make_async) as session:
            session.add(Document(title="factory"))

    @registry.handler("in")
    async def joined(ctx: JobContext) -> None:
        async with place.make_async() as session, session.begin():
            await ctx.complete_in(session)
            session.add(Document(title="in"))

    async def scenario(place: Place) -> None:
        assert (await perform_async(factory.call())).status == "done"
        assert (await perform_async(joined.call())).status == "done"
        titles = (await place.session.scalars(select(Document.title))).all()
        assert sorted(titles) == ["factory", "in"]

    place.run(scenario)


def test_a_session_of_the_other_colour_is_told(sync_place: Place) -> None:
    """`with` is for Session, `async with` for AsyncSession."""
    with pytest.raises(TypeError, match=r"`async with ctx.complete\(\)` needs an AsyncSession, got Session"):
        asyncio.run(perform_async(title_async.call(), session=Session(sync_place.engine)))
    with pytest.raises(TypeError, match=r"`with ctx.complete\(\)` needs a Session, got AsyncSession"):
        perform(title.call(), session=async_sessionmaker()())
