"""What cancel, redrive and reschedule have in common: who they may be asked of, by whom, and how they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, func, select, text, update
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue.admin import OperatorResult, cancel, redrive, reschedule
from sa_jobqueue.models import Job, jobs
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.operator import _BATCH
from tests.support.jobs import add_job, read_job

Verb = Callable[..., Any]
LATER = timedelta(hours=1)
#: Each verb, and the statuses of the jobs that it changes, before and after.
VERBS: dict[str, tuple[Verb, str, str]] = {
    "cancel": (cancel, "ready", "cancelled"),
    "redrive": (redrive, "dead", "ready"),
    "reschedule": (partial(reschedule, delay=LATER), "ready", "ready"),
}
each_verb = pytest.mark.parametrize(("verb", "before", "after"), VERBS.values(), ids=VERBS)


def add(engine: Engine, status: str) -> int:
    return add_job(engine, status=status, finished_at=None if status == "ready" else func.now())


def add_many(engine: Engine, status: str, count: int) -> list[int]:
    statement = text(
        "INSERT INTO jobqueue_jobs (kind, status, finished_at)"
        " SELECT 'test', :status, CASE WHEN :status <> 'ready' THEN now() END FROM generate_series(1, :count)"
        " RETURNING id"
    )
    with engine.begin() as connection:
        return list(connection.execute(statement, {"status": status, "count": count}).scalars())


@contextmanager
def statements_on(connection: Connection) -> Iterator[list[str]]:
    """What is sent on this connection meanwhile."""
    sent: list[str] = []

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    event.listen(connection, "before_cursor_execute", note)
    yield sent
    event.remove(connection, "before_cursor_execute", note)


def went(job_id: int, status: str) -> OperatorResult:
    return OperatorResult(job_id, landed=True, status=JobStatus(status))


def missing(job_id: int) -> OperatorResult:
    return OperatorResult(job_id, landed=False, status=None, reason="no such job")


@each_verb
def test_answers_come_once_per_id_in_the_order_given(
    engine: Engine, verb: Verb, before: str, after: str
) -> None:
    """An id that was given twice is answered once; no job has the id: so the answer says, however large it is."""
    one, two = add(engine, before), add(engine, before)
    with engine.begin() as connection:
        answers = verb(connection, iter([two, 2**63, one, two, -(2**70), 10**9, 2**63]))
        assert answers == [
            went(two, after),
            missing(2**63),
            went(one, after),
            missing(-(2**70)),
            missing(10**9),
        ]
        assert verb(connection, []) == []


@each_verb
def test_thousands_of_ids_are_a_few_statements(engine: Engine, verb: Verb, before: str, after: str) -> None:
    """One statement would compare each with each, for hours at 100,000; the answers come in the order given all the same."""
    ids = add_many(engine, before, 5000)
    wanted = ids[::-2]
    with engine.begin() as connection, statements_on(connection) as sent:
        assert verb(connection, wanted) == [went(job_id, after) for job_id in wanted]
    assert len(sent) == 2500 / _BATCH
    with engine.connect() as connection:
        changed = connection.execute(select(jobs.c.id).where(jobs.c.updated_at > jobs.c.created_at)).scalars()
        assert set(changed) == set(wanted)


@each_verb
@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (7, "expected an iterable of job ids, got int: pass a list"),
        ("78", "expected an iterable of job ids, got str"),
        (b"78", "expected an iterable of job ids, got bytes"),
        (None, "expected an iterable of job ids, got NoneType"),
        (["7"], r"expected ids of jobs \(int\), got str"),
        ([True], r"expected ids of jobs \(int\), got bool"),
        ([7, 7.0], r"expected ids of jobs \(int\), got float"),
        ([Job()], r"expected ids of jobs \(int\), got Job: pass its id"),
    ],
)
def test_ids_are_ints(verb: Verb, before: str, after: str, ids: Any, says: str) -> None:
    """What is no id is refused by its type, before the caller's transaction has begun."""
    with Session() as session:
        with pytest.raises(TypeError, match=rf"\w+\(\): {says}"):
            verb(session, ids)
        assert not session.in_transaction()


@each_verb
def test_other_targets_are_refused(engine: Engine, verb: Verb, before: str, after: str) -> None:
    """An engine is no transaction: the error names what is."""
    with pytest.raises(TypeError, match=r"\w+\(\): expected a Session, Connection, AsyncSession or Async"):
        verb(engine, [1])


@each_verb
def test_the_caller_decides(engine: Engine, verb: Verb, before: str, after: str) -> None:
    """Nothing is committed for the caller: a rollback undoes it all."""
    job_id = add(engine, before)
    row = read_job(engine, job_id)
    with engine.connect() as connection:
        assert verb(connection, [job_id]) == [went(job_id, after)]
        assert read_job(engine, job_id) == row
        connection.rollback()
    assert read_job(engine, job_id) == row


@each_verb
def test_in_a_session(engine: Engine, verb: Verb, before: str, after: str) -> None:
    """Job objects that a session holds show the change at their next read; those of other jobs are left loaded."""
    job_id, untouched = add(engine, before), add(engine, before)
    with scoped_session(sessionmaker(engine))() as session, session.begin():
        job, other = (session.get_one(Job, each) for each in (job_id, untouched))
        shown = (job.status, job.updated_at)
        assert verb(session, [job_id]) == [went(job_id, after)]
        assert (job.status, job.updated_at > shown[1]) == (after, True)
        assert "status" in vars(other)
    assert read_job(engine, job_id).status == after


def test_a_scoped_session_is_its_session(engine: Engine) -> None:
    """The registry's session does it, in its transaction."""
    job_id = add(engine, "ready")
    scoped = scoped_session(sessionmaker(engine))
    assert cancel(scoped, [job_id]) == [went(job_id, "cancelled")]
    assert read_job(engine, job_id).status == "ready"
    scoped.commit()
    scoped.remove()
    assert read_job(engine, job_id).status == "cancelled"


def test_a_session_of_several_databases(engine: Engine) -> None:
    """Where Job is bound to an engine of its own, the verb goes there."""
    job_id = add(engine, "ready")
    elsewhere = create_engine("postgresql+psycopg://nobody@localhost:1/nowhere")
    with Session(elsewhere, binds={Job: engine}) as session, session.begin():
        assert cancel(session, [job_id]) == [went(job_id, "cancelled")]
    assert read_job(engine, job_id).status == "cancelled"


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("kind", ["session", "scoped", "connection"])
def test_from_async_code(engine: Engine, driver: str, kind: str) -> None:
    """The same calls, awaited: nothing is sent before, and the caller's commit makes it real."""

    async def act(async_engine: AsyncEngine, verb: Verb, before: str, after: str) -> None:
        job_id = add(engine, before)
        if kind == "connection":
            async with async_engine.connect() as connection:
                await commit(connection, connection, verb, job_id, after)
            return
        scoped = async_scoped_session(async_sessionmaker(async_engine), asyncio.current_task)
        async with scoped() as session:
            await commit(scoped if kind == "scoped" else session, session, verb, job_id, after)
        await scoped.remove()

    async def commit(target: Any, transaction: Any, verb: Verb, job_id: int, after: str) -> None:
        shown = read_job(engine, job_id)
        later = verb(target, [job_id, 2**63])
        assert not transaction.in_transaction()
        assert await later == [went(job_id, after), missing(2**63)]
        assert read_job(engine, job_id) == shown
        await transaction.commit()
        changed = read_job(engine, job_id)
        assert (changed.status, changed.updated_at > shown.updated_at) == (after, True)

    async def call() -> None:
        async_engine = create_async_engine(engine.url.set(drivername=f"postgresql+{driver}"))
        try:
            for verb, before, after in VERBS.values():
                await act(async_engine, verb, before, after)
        finally:
            await async_engine.dispose()

    asyncio.run(call())


def test_jobs_of_an_async_session_are_expired(engine: Engine) -> None:
    """As those of a Session are."""
    job_id = add(engine, "ready")

    async def call() -> None:
        async_engine = create_async_engine(engine.url.set(drivername="postgresql+psycopg"))
        async with AsyncSession(async_engine) as session, session.begin():
            job = await session.get_one(Job, job_id)
            await cancel(session, [job_id])
            assert "status" not in vars(job)
            await session.refresh(job)
            assert job.status == "cancelled"
        await async_engine.dispose()

    asyncio.run(call())


def test_jobs_are_read_anew_after_a_savepoint_that_is_rolled_back(engine: Engine) -> None:
    """Whatever was read in it."""
    job_id = add(engine, "ready")
    with Session(engine) as session:
        job = session.get_one(Job, job_id)
        savepoint = session.begin_nested()
        cancel(session, [job_id])
        assert job.status == "cancelled"
        savepoint.rollback()
        assert job.status == "ready"


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "AUTOCOMMIT"])
@each_verb
def test_the_last_status_is_told(engine: Engine, verb: Verb, before: str, after: str, isolation: str) -> None:
    """The status in the answer is the row's own, in a transaction and without one."""
    job_id = add(engine, before)
    with engine.connect().execution_options(isolation_level=isolation) as connection:
        connection.execute(update(jobs).values(status="done", finished_at=func.now()))
        (answer,) = verb(connection, [job_id])
    assert (answer.landed, answer.status) == (False, JobStatus.DONE)
    assert answer.reason.startswith("the job is done")
