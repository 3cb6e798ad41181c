"""What `sa_jobqueue.admin` reads for an application: over a session or a connection, sync or async, in its transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Engine, func
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue import admin
from sa_jobqueue.states import JobStatus
from tests.support.jobs import add_job, insert_job


@pytest.mark.parametrize("kind", ["connection", "session", "scoped_session"])
def test_in_the_callers_transaction(engine: Engine, kind: str) -> None:
    """What the transaction itself has added is seen, and nothing is committed for the caller."""
    add_job(engine, queue="a", status="dead", finished_at=func.now())
    with engine.connect() as connection, connection.begin() as transaction:
        if kind == "connection":
            target: Any = connection
        elif kind == "session":
            target = Session(connection)
        else:
            target = scoped_session(sessionmaker(connection))
        added = insert_job(connection, queue="b", payload={"n": 1})
        page = admin.list_jobs(target, queues=["b"])
        assert [job.id for job in page.jobs] == [added]
        assert [job.queue for job in admin.list_jobs(target, statuses=["dead"]).jobs] == ["a"]
        job = admin.get_job(target, added)
        assert job is not None
        assert job.payload == {"n": 1}
        assert admin.get_job(target, added + 1) is None
        assert [queue.queue for queue in admin.stats(target).queues] == ["a", "b"]
        transaction.rollback()
    with engine.connect() as connection:
        assert admin.get_job(connection, added) is None


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_from_async_code(engine: Engine, driver: str) -> None:
    """The same reads as coroutines, on both drivers."""
    job_id = add_job(engine, kind="k", payload={"n": 1})

    async def read() -> tuple[Any, ...]:
        async_engine = create_async_engine(engine.url.set(drivername=f"postgresql+{driver}"))
        try:
            async with AsyncSession(async_engine) as session, async_engine.connect() as connection:
                return (
                    await admin.list_jobs(session, kinds=["k"], queues=["default"], due=True),
                    await admin.list_jobs(connection, ids=[job_id]),
                    await admin.list_jobs(session, key="none"),
                    await admin.get_job(connection, job_id),
                    await admin.stats(session, exact=True),
                )
        finally:
            await async_engine.dispose()

    due, listed, none, job, numbers = asyncio.run(read())
    assert [one.id for one in due.jobs] == [one.id for one in listed.jobs] == [job_id]
    assert none.jobs == ()
    assert (job.payload, job.status) == ({"n": 1}, JobStatus.READY)
    assert numbers.total.due == 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"statuses": ["finished"]}, ValueError, "'finished' is not a valid JobStatus"),
        ({"statuses": "dead"}, TypeError, "statuses='dead': pass a list of names"),
        ({"kinds": "mail.send"}, TypeError, "kinds='mail.send': pass a list"),
        ({"limit": 0}, ValueError, "limit=0: must be a whole number from 1 on"),
        ({"due": True, "statuses": ["dead"]}, ValueError, "due jobs are ready ones, not dead"),
    ],
)
def test_arguments_are_checked(
    engine: Engine, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Before anything is sent."""
    with engine.connect() as connection:
        with pytest.raises(error, match=message):
            admin.list_jobs(connection, **given)
        assert not connection.in_transaction()


def test_other_targets_are_refused(engine: Engine) -> None:
    """An engine has no transaction of the caller's."""
    target: Any = engine
    for read in (admin.list_jobs, admin.stats, lambda given: admin.get_job(given, 1)):
        with pytest.raises(TypeError, match="expected a Session, Connection, AsyncSession"):
            read(target)
