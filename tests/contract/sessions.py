"""Sessions of every make: how each is opened on the engine of a driver."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

import flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import create_engine
from sqlalchemy.exc import SADeprecationWarning
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel import Session as SQLModelSession
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

from sa_jobqueue import Job
from tests.contract.unit import InOuterTransaction, ThroughRepository, Unit, settled
from tests.entry.application import Document, Ticket, related_jobs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SADeprecationWarning)  # its import uses what SQLAlchemy 2.1 deprecates
    from advanced_alchemy.config import (
        AsyncSessionConfig,
        SQLAlchemyAsyncConfig,
        SQLAlchemySyncConfig,
        SyncSessionConfig,
    )
    from advanced_alchemy.repository import SQLAlchemyAsyncRepository, SQLAlchemySyncRepository

#: Nobody connects to it.
_ELSEWHERE = "postgresql+{driver}://nobody@127.0.0.1:1/nowhere"


class Repository(SQLAlchemySyncRepository[Document]):  # type: ignore[type-var]
    """As an application has one for each of its models."""

    model_type = Document


class AsyncRepository(SQLAlchemyAsyncRepository[Document]):  # type: ignore[type-var]
    """The same over an AsyncSession."""

    model_type = Document


async def plain(engine: Any, **options: Any) -> Unit:
    return Unit(sessionmaker(engine, **options)())


async def plain_async(engine: Any, **options: Any) -> Unit:
    return Unit(async_sessionmaker(engine, **options)())


async def scoped(engine: Any, **options: Any) -> Unit:
    registry = scoped_session(sessionmaker(engine, **options))
    return Unit(registry, close=registry.remove)


async def scoped_async(engine: Any, **options: Any) -> Unit:
    registry = async_scoped_session(async_sessionmaker(engine, **options), scopefunc=asyncio.current_task)
    return Unit(registry, close=registry.remove)


async def sqlmodel(engine: Any, **options: Any) -> Unit:
    return Unit(SQLModelSession(engine, **options))


async def sqlmodel_async(engine: Any, **options: Any) -> Unit:
    return Unit(SQLModelAsyncSession(engine, **options))


async def flask_sqlalchemy(engine: Any, **options: Any) -> Unit:
    application = flask.Flask("shop")
    application.config["SQLALCHEMY_DATABASE_URI"] = engine.url
    database = SQLAlchemy(application, session_options=options)
    context: AbstractContextManager[Any] = application.app_context()
    context.__enter__()

    def close() -> None:
        database.session.remove()
        database.engine.dispose()
        context.__exit__(None, None, None)

    return Unit(database.session, close=close)


async def advanced_alchemy(engine: Any, **options: Any) -> Unit:
    config = SQLAlchemySyncConfig(engine_instance=engine, session_config=SyncSessionConfig(**options))
    return Unit(config.create_session_maker()())


async def advanced_alchemy_async(engine: Any, **options: Any) -> Unit:
    config = SQLAlchemyAsyncConfig(engine_instance=engine, session_config=AsyncSessionConfig(**options))
    return Unit(config.create_session_maker()())


async def repository(engine: Any, **options: Any) -> Unit:
    session = sessionmaker(engine, **options)()
    return ThroughRepository(session, Repository(session=session))


async def repository_async(engine: Any, **options: Any) -> Unit:
    session = async_sessionmaker(engine, **options)()
    return ThroughRepository(session, AsyncRepository(session=session))


async def several_engines(engine: Any, **options: Any) -> Unit:
    elsewhere = create_engine(_ELSEWHERE.format(driver=engine.driver))
    return Unit(sessionmaker(binds=_binds(engine, elsewhere), **options)())


async def several_engines_async(engine: Any, **options: Any) -> Unit:
    elsewhere = create_async_engine(_ELSEWHERE.format(driver=engine.driver))
    return Unit(async_sessionmaker(binds=_binds(engine, elsewhere), **options)())


async def two_phase(engine: Any, **options: Any) -> Unit:
    return Unit(sessionmaker(engine, twophase=True, **options)())


async def two_phase_async(engine: Any, **options: Any) -> Unit:
    return Unit(async_sessionmaker(engine, twophase=True, **options)())


async def outer_transaction(engine: Any, **options: Any) -> Unit:
    """The fixture of SQLAlchemy's documentation; its `connection.begin()` and the session work for both sorts."""
    return await _outer_transaction(engine, Session, options)


async def outer_transaction_async(engine: Any, **options: Any) -> Unit:
    return await _outer_transaction(engine, AsyncSession, options)


async def connection(engine: Any, **_: Any) -> Unit:
    return Unit(await settled(engine.connect()), is_session=False)


def _binds(engine: Any, elsewhere: Any) -> dict[Any, Any]:
    return {Ticket: elsewhere, Document: engine, related_jobs: engine, Job: engine}


async def _outer_transaction(engine: Any, make: Callable[..., Any], options: dict[str, Any]) -> Unit:
    connection = await settled(engine.connect())
    outer = await settled(connection.begin())
    session = make(connection, join_transaction_mode="create_savepoint", **options)

    async def close() -> None:
        await settled(session.close())
        if outer.is_active:
            await settled(outer.rollback())
        await settled(connection.close())

    return InOuterTransaction(session, outer, close)


Open = Callable[..., Awaitable[Unit]]
#: By name, how a sync and how an async one is opened; None where there is no such thing.
SESSIONS: dict[str, tuple[Open, Open | None]] = {
    "sessionmaker": (plain, plain_async),
    "scoped": (scoped, scoped_async),
    "SQLModel": (sqlmodel, sqlmodel_async),
    "Flask-SQLAlchemy": (flask_sqlalchemy, None),
    "advanced-alchemy": (advanced_alchemy, advanced_alchemy_async),
    "repository": (repository, repository_async),
    "several engines": (several_engines, several_engines_async),
    "two-phase": (two_phase, two_phase_async),
    "outer transaction": (outer_transaction, outer_transaction_async),
    "connection": (connection, connection),
}
