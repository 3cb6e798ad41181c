"""ctx.complete() under drain(): within the test's own transaction, by the runner's fence, and nothing is committed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from sa_jobqueue import JobContext, Registry, Retry, enqueue, enqueue_many, fixed
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.testing import Drained, DrainError, assert_enqueued, drain
from tests.entry.application import Document
from tests.testing.conftest import Place, told
from tests.testing.test_drain import column

LATER = fixed(timedelta(hours=1))


class HandlerError(Exception):
    """What a handler of these tests raises."""


async def titles(place: Place) -> list[str]:
    """The titles of all documents, as the test's session sees them."""
    return list((await told(place.session.scalars(select(Document.title).order_by(Document.id)))).all())


async def add(place: Place, kind: str) -> None:
    """A document that is not committed, and the job for it."""
    place.session.add_all([document := Document(title="news"), enqueue(kind)])
    await told(place.session.flush())
    assert document.id is not None


def test_a_block_sees_the_tests_rows_and_its_writes_count(place: Place) -> None:
    """It reads what is uncommitted, its own writes too; the job is done, its result stored, the follow-up enqueued."""
    jobs = Registry()

    @jobs.handler("title")
    def title(ctx: JobContext) -> None:
        with ctx.complete(result={"titles": 1}) as session:
            document = session.scalars(select(Document)).one()
            document.title = "NEWS"
            session.flush()
            assert session.scalars(select(Document.title)).one() == "NEWS"
            session.add(enqueue("follow-up"))

    async def scenario(place: Place) -> None:
        await add(place, "title")
        drained = await told(drain(place.session, jobs))
        assert drained == Drained(done=1)
        (run,) = drained.runs
        assert (run.verb, run.status, run.exception) == ("complete", "done", None)
        assert await titles(place) == ["NEWS"]
        assert await column(place, "status") == ["done", "ready"]
        assert await column(place, "result") == [{"titles": 1}, None]
        await told(assert_enqueued(place.session, "follow-up"))

    place.run(scenario)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("sync", "own"),
        *((kind, form) for kind in ("psycopg", "asyncpg") for form in ("own", "factory", "in")),
    ],
)
def test_async_handlers_complete_on_the_same_connection(application: Engine, kind: str, form: str) -> None:
    """`async with`, with a session of the drain's or the application's, and complete_in.

    A sync drain gives an async handler a session as well; an application's own async sessions are on no sync connection.
    """
    jobs, place = Registry(), Place(kind, application)

    @jobs.handler("title")
    async def title(ctx: JobContext) -> None:
        if form == "in":
            async with place.make_async() as session, session.begin():
                await ctx.complete_in(session, result=7)
                (await session.scalars(select(Document))).one().title = "NEWS"
            return
        async with ctx.complete(place.make_async if form == "factory" else None, result=7) as session:
            (await session.scalars(select(Document))).one().title = "NEWS"

    async def scenario(place: Place) -> None:
        await add(place, "title")
        assert await told(drain(place.session, jobs)) == Drained(done=1)
        assert await titles(place) == ["NEWS"]
        assert await column(place, "result") == [7]

    place.run(scenario)


@pytest.mark.parametrize("form", ["factory", "in"])
def test_sessions_of_the_application_complete_as_well(place: Place, form: str) -> None:
    """Bound to the test's connection as the recipe says; their commit is the release of a savepoint."""
    jobs = Registry()

    @jobs.handler("title")
    def title(ctx: JobContext) -> None:
        if form == "factory":
            with ctx.complete(place.make) as session:
                session.scalars(select(Document)).one().title = "NEWS"
        else:
            with place.make() as session, session.begin():
                ctx.complete_in(session)
                session.scalars(select(Document)).one().title = "NEWS"

    async def scenario(place: Place) -> None:
        await add(place, "title")
        assert await told(drain(place.session, jobs)) == Drained(done=1)
        assert await titles(place) == ["NEWS"]

    place.run(scenario)


def test_a_commit_by_hand(place: Place) -> None:
    """The handler's, within its block; here it is the release of a savepoint, and the fence is sent once all the same."""
    jobs = Registry()

    @jobs.handler("title")
    def title(ctx: JobContext) -> None:
        ctx.progress(1, "said before the end")
        with ctx.complete() as session:
            document = session.scalars(select(Document)).one()
            document.title = "NEWS"
            session.commit()
            assert document.title == "NEWS"

    async def scenario(place: Place) -> None:
        await add(place, "title")
        assert await told(drain(place.session, jobs)) == Drained(done=1)
        assert await titles(place) == ["NEWS"]
        (progress,) = await column(place, "progress")
        assert progress["text"] == "said before the end"

    place.run(scenario)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_a_block_that_fails_takes_its_writes_back(place: Place, is_async: bool) -> None:
    """Its rows are gone, those of the test are there, and the job is settled as after any failure."""
    jobs = Registry()

    def title(ctx: JobContext) -> None:
        with ctx.complete() as session:
            session.scalars(select(Document)).one().title = "NEWS"
            session.flush()
            raise HandlerError("no")

    async def title_async(ctx: JobContext) -> None:
        async with ctx.complete() as session:
            (await session.scalars(select(Document))).one().title = "NEWS"
            await session.flush()
            raise HandlerError("no")

    jobs.handler("title", retry=LATER)(title_async if is_async else title)

    async def scenario(place: Place) -> None:
        await add(place, "title")
        with pytest.raises(HandlerError, match="no"):
            await told(drain(place.session, jobs))
        assert await titles(place) == ["news"]
        assert await column(place, "status") == ["ready"]
        assert await column(place, "attempts") == [1]

    place.run(scenario)


def test_who_swallows_the_failure_of_a_block_is_not_done(place: Place) -> None:
    """A return counts as what ended the block; an outcome of the handler's own keeps its meaning."""
    jobs = Registry()

    @jobs.handler("return", retry=LATER)
    def swallow(ctx: JobContext) -> str:
        try:
            with ctx.complete():
                raise HandlerError("swallowed")
        except HandlerError:
            return "fine"

    @jobs.handler("outcome")
    def outcome(ctx: JobContext) -> Retry:
        try:
            with ctx.complete():
                raise HandlerError("swallowed")
        except HandlerError:
            return Retry(timedelta(hours=2), "busy")

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("return"), enqueue("outcome")])
        drained = await told(drain(place.session, jobs, raise_errors=False))
        assert drained == Drained(retried=2)
        returned, said = drained.runs
        assert isinstance(returned.exception, HandlerError)
        assert (said.delay, said.exception) == (timedelta(hours=2), None)

    place.run(scenario)


@pytest.mark.parametrize("end", ["rollback", "savepoint", "never"])
def test_what_is_rolled_back_after_the_fence_completes_nothing(place: Place, end: str) -> None:
    """The completion counts for as long as the savepoint that it stands in; a return is no completion either."""
    jobs = Registry()

    @jobs.handler("title", retry=LATER)
    def title(ctx: JobContext) -> None:
        with place.make() as session:
            if end == "savepoint":
                savepoint = session.begin_nested()
                ctx.complete_in(session)
                savepoint.rollback()
                session.commit()
                return
            ctx.complete_in(session)
            session.scalars(select(Document)).one().title = "NEWS"
            session.flush()
            if end == "rollback":
                session.rollback()

    async def scenario(place: Place) -> None:
        await add(place, "title")
        drained = await told(drain(place.session, jobs, raise_errors=False))
        assert drained == Drained(retried=1)
        assert "RuntimeError" in str(drained.runs[0].error)
        assert await titles(place) == ["news"]
        assert await column(place, "status") == ["ready"]

    place.run(scenario)


def test_an_outer_savepoint_takes_a_landed_block_back(sync_place: Place) -> None:
    """The row knows: a release within a savepoint that is rolled back has completed nothing."""
    jobs = Registry()

    @jobs.handler("title", retry=LATER)
    def title(ctx: JobContext) -> None:
        outer = sync_place.connection.begin_nested()
        with ctx.complete() as session:
            session.scalars(select(Document)).one().title = "NEWS"
        outer.rollback()

    async def scenario(place: Place) -> None:
        await add(place, "title")
        drained = await told(drain(place.session, jobs, raise_errors=False))
        assert drained == Drained(retried=1)
        assert await titles(place) == ["news"]

    sync_place.run(scenario)


def test_what_a_handler_says_after_its_block_changes_nothing(place: Place) -> None:
    """The job is done. An error fails the test all the same, for there it would be lost in a log."""
    jobs = Registry()

    @jobs.handler("fails")
    def fails(ctx: JobContext) -> None:
        with ctx.complete():
            pass
        raise HandlerError("afterwards")

    @jobs.handler("retry")
    def retry(ctx: JobContext) -> Retry:
        with ctx.complete():
            pass
        return Retry()

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("fails", priority=0), enqueue("retry")])
        with pytest.raises(HandlerError, match="afterwards") as raised:
            await told(drain(place.session, jobs))
        assert "the job is done now" in "".join(raised.value.__notes__)
        assert await told(drain(place.session, jobs)) == Drained(done=1)
        assert await column(place, "status") == ["done", "done"]

    place.run(scenario)


def test_a_second_completion_is_refused(sync_place: Place) -> None:
    """As in a runner; after one that wrote nothing a handler may begin another."""
    jobs = Registry()

    @jobs.handler("twice")
    def twice(ctx: JobContext) -> None:
        with ctx.complete():
            pass
        with pytest.raises(RuntimeError, match="second completion"), ctx.complete():
            pass

    @jobs.handler("again")
    def again(ctx: JobContext) -> None:
        with pytest.raises(HandlerError), ctx.complete():
            raise HandlerError
        with ctx.complete() as session:
            session.add(Document(title="second try"))

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("twice"), enqueue("again")])
        assert await told(drain(place.session, jobs)) == Drained(done=2)
        assert await titles(place) == ["second try"]

    sync_place.run(scenario)


def test_a_session_on_another_connection_is_told(sync_place: Place) -> None:
    """It doesn't see the test's job: the error says where to look, and nothing is committed there."""
    jobs = Registry()

    @jobs.handler("title", retry=LATER)
    def title(ctx: JobContext) -> None:
        with ctx.complete(lambda: Session(sync_place.engine)) as session:
            session.add(Document(title="elsewhere"))

    async def scenario(place: Place) -> None:
        await add(place, "title")
        with pytest.raises(LeaseLostError, match="the session is bound to another database") as raised:
            await told(drain(place.session, jobs))
        assert "join_transaction_mode='create_savepoint'" in "".join(raised.value.__notes__)

    sync_place.run(scenario)
    with sync_place.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM documents")) == 0


def test_a_transaction_that_is_left_aborted_is_told(application: Engine) -> None:
    """A statement that fails outside of a savepoint, after a block: the drain says so, as without one."""
    jobs = Registry()
    with application.connect() as connection, connection.begin():

        @jobs.handler("title")
        def title(ctx: JobContext) -> None:
            with ctx.complete():
                pass
            connection.execute(text("SELECT 1/0"))

        enqueue_many(connection, [enqueue("title")])
        with pytest.raises(DrainError, match="left the test's transaction aborted"):
            drain(connection, jobs)


def test_the_database_is_as_it_was(application: Engine) -> None:
    """What a drain has completed is the test's own: the next one finds nothing."""
    jobs = Registry()

    @jobs.handler("title")
    def title(ctx: JobContext) -> None:
        with ctx.complete() as session:
            session.add(Document(title="mine"))

    with application.connect() as connection:
        transaction = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            session.add(enqueue("title"))
            assert drain(session, jobs) == Drained(done=1)
            with application.connect() as other:
                assert other.scalar(text("SELECT count(*) FROM documents")) == 0
                assert other.scalar(text("SELECT count(*) FROM jobqueue_jobs")) == 0
        transaction.rollback()
    with application.connect() as other:
        assert other.scalar(text("SELECT count(*) FROM documents")) == 0
