"""What type checkers see of the way in; checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, assert_type

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from sa_jobqueue import Enqueued, Job, enqueue, enqueue_many, ref
from sa_jobqueue.admin import OperatorResult, cancel, redrive, reschedule
from sa_jobqueue.records import HandlerCall


def jobs_are_made(call: HandlerCall, document: object) -> None:
    assert_type(enqueue("k", {"document_id": ref(document)}, delay=timedelta(minutes=1)), Job)
    assert_type(enqueue(call, idempotency_key="x"), Job)
    assert_type(enqueue("k").enqueued, Enqueued | None)
    assert_type(ref(document, "key"), Any)
    assert_type(enqueue("k", {}, payload_version=3, max_payload_bytes=1_000_000), Job)
    assert_type(enqueue(call, key_scope=None, on_conflict=None), Job)
    enqueue(call, on_conflict="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    enqueue("k", {}, delay=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    enqueue(enqueue)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def sync_targets_answer_at_once(
    session: Session, scoped: scoped_session[Session], connection: Connection, jobs: list[Job]
) -> None:
    assert_type(enqueue_many(session, jobs), list[Enqueued])
    assert_type(enqueue_many(scoped, (job for job in jobs)), list[Enqueued])
    assert_type(enqueue_many(connection, jobs), list[Enqueued])


async def async_targets_are_awaited(
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    connection: AsyncConnection,
    jobs: list[Job],
) -> None:
    await assert_type(enqueue_many(session, jobs), Coroutine[Any, Any, list[Enqueued]])
    assert_type(await enqueue_many(session, jobs), list[Enqueued])
    assert_type(await enqueue_many(scoped, jobs), list[Enqueued])
    assert_type(await enqueue_many(connection, jobs), list[Enqueued])
    enqueue_many(session, jobs)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


def wrong_targets_are_flagged(engine: Engine, jobs: list[Job]) -> None:
    enqueue_many(engine, jobs)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def people_answer_at_once(
    session: Session, scoped: scoped_session[Session], connection: Connection, when: datetime
) -> None:
    assert_type(cancel(session, [1]), list[OperatorResult])
    assert_type(redrive(scoped, {1, 2}), list[OperatorResult])
    assert_type(reschedule(connection, range(9), run_at=when, priority=0), list[OperatorResult])
    cancel(session, ["1"])  # type: ignore[list-item]  # pyright: ignore[reportCallIssue, reportArgumentType]
    reschedule(session, [1], delay=60)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def people_are_awaited(
    session: AsyncSession, scoped: async_scoped_session[AsyncSession], connection: AsyncConnection
) -> None:
    assert_type(await cancel(session, [1]), list[OperatorResult])
    assert_type(await redrive(scoped, [1]), list[OperatorResult])
    assert_type(await reschedule(connection, [1], delay=timedelta(minutes=1)), list[OperatorResult])
    cancel(session, [1])  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
