"""What type checkers see of the tools for tests; checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from sa_jobqueue import JobContext, JobStatus, Registry
from sa_jobqueue.testing import (
    Drained,
    Performed,
    PostgresServer,
    PostgresSource,
    StoredJob,
    all_enqueued,
    assert_enqueued,
    drain,
    find_postgres,
    perform,
    perform_async,
    refute_enqueued,
    start_postgres,
)

assert_type(find_postgres("wheel"), PostgresSource)
with start_postgres("local", settings={"fsync": "off"}, tcp=True) as server:
    assert_type(server, PostgresServer)
    assert_type(server.url("app", "asyncpg", tcp=True), str)
    server.restart("immediate")
start_postgres("podman")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

jobs = Registry()


@jobs.handler("document.embed")
def embed(ctx: JobContext, document_id: int) -> None: ...


def sync_targets(session: Session, scoped: scoped_session[Session], connection: Connection) -> None:
    assert_type(drain(session, jobs), Drained)
    assert_type(drain(scoped, jobs, queues=["ai"], limit=5, with_delayed=True), Drained)
    assert_type(drain(connection, jobs, raise_errors=False).runs, tuple[Performed, ...])
    assert_type(assert_enqueued(session, embed), StoredJob)
    assert_type(assert_enqueued(scoped, "k", {"a": 1}, count=2), list[StoredJob])
    assert_type(all_enqueued(connection, embed.call(document_id=7), status=JobStatus.DONE), list[StoredJob])
    assert_type(assert_enqueued(session).delay, timedelta)
    refute_enqueued(session, "k", run_at=(datetime.now(UTC), timedelta(1)), key=None, priority=3, queue="ai")
    assert_enqueued(session, que="ai")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def async_targets(
    session: AsyncSession, scoped: async_scoped_session[AsyncSession], connection: AsyncConnection
) -> None:
    await assert_type(drain(session, jobs), Coroutine[Any, Any, Drained])
    assert_type(await drain(scoped, jobs), Drained)
    assert_type(await assert_enqueued(session, "k"), StoredJob)
    assert_type(await assert_enqueued(scoped, "k", count=1), list[StoredJob])
    assert_type(await all_enqueued(connection), list[StoredJob])
    assert_type(await refute_enqueued(session, "k"), None)
    drain(session, jobs)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    refute_enqueued(session)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


async def runs(session: Session, async_session: AsyncSession, engine: Engine) -> None:
    assert_type(perform(embed.call(document_id=7), attempt=2, raise_errors=False), Performed)
    assert_type(perform(jobs, "document.embed", {"document_id": 7}).status, JobStatus)
    assert_type(perform(jobs, "document.embed", {"id": 7}, payload_version=1), Performed)
    assert_type(await perform_async(embed.call(document_id=7)), Performed)
    perform(embed.call(document_id=7), session=session)
    await perform_async(embed.call(document_id=7), session=async_session)
    perform(embed.call(document_id=7), session=engine)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    perform(embed.call(document_id=7), attempts=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    perform(embed.call(document="7"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def wrong_targets(engine: Engine) -> None:
    drain(engine, jobs)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_enqueued(engine)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
