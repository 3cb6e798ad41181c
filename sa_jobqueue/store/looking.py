"""One look at a job from outside of every transaction: a connection for one statement, and given back at once.

Between two looks nothing is held, neither a transaction nor a connection of the pool.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import sessionmaker

from sa_jobqueue.models import Job
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store import inspection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

    from sa_jobqueue.views import FinishedJob

    #: What looks are made through: at once with the first, awaited with the second.
    SyncDatabase = Engine | sessionmaker[Any]
    AsyncDatabase = AsyncEngine | async_sessionmaker[Any]
    Found = FinishedJob | JobStatus | None

_ALONE = "AUTOCOMMIT"


def looks(database: Any, job_id: int, *, caller: str) -> Callable[[], Found]:
    """A function that looks through an engine or a sessionmaker. Raises TypeError, naming the `caller`, for any other."""
    if isinstance(database, sessionmaker):
        with database() as session:
            database = session.get_bind(Job.__mapper__)
        if isinstance(database, Connection):
            return _looks_within(database, job_id, caller)
    if not isinstance(database, Engine):
        raise TypeError(_expected(caller, database))

    def look() -> Found:
        with database.connect() as connection:
            return inspection.ending(connection.execution_options(isolation_level=_ALONE), job_id)

    return look


def looks_async(database: Any, job_id: int, *, caller: str) -> Callable[[], Awaitable[Found]]:
    """The same through an AsyncEngine or an async_sessionmaker."""
    from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

    if isinstance(database, async_sessionmaker):
        bind = database().sync_session.get_bind(Job.__mapper__)
        if isinstance(bind, Connection):
            within = _looks_within(bind, job_id, caller)

            async def look_within() -> Found:
                async with database() as session:
                    found: Found = await session.run_sync(lambda _: within())
                    return found

            return look_within
        database = AsyncEngine(bind)
    engine: AsyncEngine = database

    async def look() -> Found:
        async with engine.connect() as connection:
            alone = await connection.execution_options(isolation_level=_ALONE)
            return await alone.run_sync(inspection.ending, job_id)

    return look


def is_async(database: object) -> bool:
    """Whether looks through it are awaited. Whoever has such an object has imported SQLAlchemy's async side."""
    extension: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    return extension is not None and isinstance(
        database, extension.AsyncEngine | extension.async_sessionmaker
    )


def _looks_within(connection: Connection, job_id: int, caller: str) -> Callable[[], Found]:
    """Sessions on one connection, as tests have them: what is in its transaction can have ended, but never will."""

    def look() -> Found:
        found = inspection.ending(connection, job_id)
        if isinstance(found, JobStatus):
            raise RuntimeError(
                f"{caller}(): job {job_id} is {found}, and the sessions of this factory share one connection: in its open "
                "transaction nothing changes while we wait. In a test drain() first; elsewhere pass an engine"
            )
        return found

    return look


def _expected(caller: str, database: object) -> str:
    advice = (
        "one of these holds a transaction while we wait: pass what makes them"
        if hasattr(database, "in_transaction")
        else "pass create_engine(...) or your sessionmaker"
    )
    return (
        f"{caller}(): expected an Engine, AsyncEngine, sessionmaker or async_sessionmaker first, got "
        f"{type(database).__qualname__}: {advice}"
    )
