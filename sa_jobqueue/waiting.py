"""`wait_for()`: whoever needs a job's answer now, a web request for example, waits until the job has come to its end.

By looking: first soon and then less often, one statement per look, nothing held in between. Nothing here knows SQL.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue.admin.ids import checked_one
from sa_jobqueue.durations import check_delay, format_duration
from sa_jobqueue.errors import WaitTimeoutError
from sa_jobqueue.store.looking import is_async, looks, looks_async
from sa_jobqueue.views import FinishedJob

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from datetime import timedelta

    from sa_jobqueue.store.looking import AsyncDatabase, Found, SyncDatabase

#: Seconds between the first two looks, doubling up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
_NAME = "wait_for"


@overload
def wait_for(database: SyncDatabase, job_id: int, *, timeout: timedelta) -> FinishedJob: ...


@overload
def wait_for(
    database: AsyncDatabase, job_id: int, *, timeout: timedelta
) -> Coroutine[Any, Any, FinishedJob]: ...


def wait_for(
    database: Any, job_id: int, *, timeout: timedelta
) -> FinishedJob | Coroutine[Any, Any, FinishedJob]:
    """Wait until a job is done, dead or cancelled, and tell which, with its result, reason and last error.

        answer = wait_for(engine, job.enqueued.id, timeout=timedelta(seconds=5))
        answer = await wait_for(async_engine, job_id, timeout=timedelta(seconds=5))

    Call it after the commit that enqueued the job, for nobody runs it before. It looks through the engine, or the one that
    a sessionmaker's sessions would use: the first time at once, then after 10 ms, doubling up to a second, each pause
    shortened at random by up to half. A look is one statement by the primary key, on a connection that goes back to the
    pool at once: a hundred waiters ask for some 130 rows a second. In a handler it occupies a slot that the other job
    may be waiting for.

    Raises WaitTimeoutError, a TimeoutError, when the job has not ended within `timeout` (it goes on; 0 looks once), and
    LookupError when there is no such job: not committed, rolled back, or pruned meanwhile. Errors of the database pass
    through. Raises RuntimeError for an unfinished job where all sessions share one connection, as in tests, and TypeError or
    ValueError for arguments that can't work, a Session or Connection among them.
    """
    wait = _Wait(checked_one(_NAME, job_id), check_delay(f"{_NAME}(timeout=...)", timeout))
    if is_async(database):
        return _until_its_end_async(database, wait)
    look = looks(database, wait.job_id, caller=_NAME)
    while (pause := wait.pause_after(look())) is not None:
        time.sleep(pause)
    return wait.end


async def _until_its_end_async(database: AsyncDatabase, wait: _Wait) -> FinishedJob:
    look = looks_async(database, wait.job_id, caller=_NAME)
    while (pause := wait.pause_after(await look())) is not None:
        await asyncio.sleep(pause)
    return wait.end


class _Wait:
    """One wait: what each look has found, and how long to pause before the next. Its time begins with the first answer."""

    end: FinishedJob

    def __init__(self, job_id: int, timeout: timedelta) -> None:
        self.job_id = job_id
        self._timeout = timeout
        self._deadline: float | None = None
        self._pauses = pauses()

    def pause_after(self, found: Found) -> float | None:
        """Seconds until the next look; None when the job has come to its `end`."""
        if isinstance(found, FinishedJob):
            self.end = found
            return None
        now = time.monotonic()
        first = self._deadline is None
        if self._deadline is None:
            self._deadline = now + self._timeout.total_seconds()
        if found is None:
            raise LookupError(self._missing(first=first))
        if now >= self._deadline:
            raise WaitTimeoutError(
                f"job {self.job_id} is {found}, {format_duration(self._timeout)} are over; it goes on without us",
                job_id=self.job_id,
                status=found,
            )
        return min(next(self._pauses), self._deadline - now)

    def _missing(self, *, first: bool) -> str:
        if first:
            return (
                f"{_NAME}(): there is no job {self.job_id}: never enqueued, rolled back, pruned, or not committed yet; "
                "inside the transaction that enqueues it nobody can wait for it: leave that first"
            )
        return (
            f"{_NAME}(): job {self.job_id} was there and is gone: it has been pruned or deleted meanwhile, and how it ended "
            "can't be told; keep finished jobs for longer (--keep-done)"
        )


def pauses() -> Iterator[float]:
    """Seconds between looks: doubling, capped, each shortened by up to half, so that waiters don't march in step."""
    longest = FIRST_PAUSE
    while True:
        yield longest * (1 - random.random() / 2)  # noqa: S311 - spreads looks, guards nothing
        longest = min(longest * 2, LONGEST_PAUSE)
