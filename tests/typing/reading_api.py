"""What type checkers must see of the reads for people: checked by mypy and pyright, never executed."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, assert_type

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import FinishedJob, JobContext, JobStatus, WaitTimeoutError, admin, wait_for

SOON = timedelta(seconds=5)


def sync(session: Session, connection: Connection) -> None:
    assert_type(admin.list_jobs(session, statuses=["dead"], limit=5), admin.JobPage)
    assert_type(admin.get_job(connection, 7), admin.JobDetails | None)
    assert_type(admin.stats(session), admin.Stats)
    admin.list_jobs("url")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def from_async_code(session: AsyncSession) -> None:
    assert_type(await admin.list_jobs(session), admin.JobPage)
    assert_type(await admin.get_job(session, 7), admin.JobDetails | None)
    assert_type(await admin.stats(session, exact=True), admin.Stats)


def waiting(engine: Engine, make: sessionmaker[Session], session: Session) -> None:
    assert_type(wait_for(engine, 7, timeout=SOON), FinishedJob)
    assert_type(wait_for(make, 7, timeout=SOON).status, JobStatus)
    wait_for(session, 7, timeout=SOON)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    wait_for(engine, 7, timeout=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    try:
        assert_type(wait_for(engine, 7, timeout=SOON).done, bool)
    except WaitTimeoutError as error:
        assert_type(error.job_id, int)


async def awaiting(engine: AsyncEngine, make: async_sessionmaker[AsyncSession]) -> None:
    await assert_type(wait_for(engine, 7, timeout=SOON), Coroutine[Any, Any, FinishedJob])
    assert_type(await wait_for(make, 7, timeout=SOON), FinishedJob)
    wait_for(engine, 7, timeout=SOON)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


def progress(ctx: JobContext, session: Session) -> None:
    ctx.progress(0.4, "page 12")
    ctx.progress(None, text="page 12")
    ctx.progress("40%")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    if (job := admin.get_job(session, 7)) is not None:
        assert_type(job.progress, admin.JobProgress | None)
