"""What type checkers must see of the reads for people: checked by mypy and pyright, never executed."""

from __future__ import annotations

from typing import assert_type

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_jobqueue import admin


def sync(session: Session, connection: Connection) -> None:
    assert_type(admin.list_jobs(session, statuses=["dead"], limit=5), admin.JobPage)
    assert_type(admin.get_job(connection, 7), admin.JobDetails | None)
    assert_type(admin.stats(session), admin.Stats)
    admin.list_jobs("url")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def from_async_code(session: AsyncSession) -> None:
    assert_type(await admin.list_jobs(session), admin.JobPage)
    assert_type(await admin.get_job(session, 7), admin.JobDetails | None)
    assert_type(await admin.stats(session, exact=True), admin.Stats)
