"""What people read: jobs by filter, one job whole, the numbers of the queues; nothing is locked or changed.

In the caller's transaction. What is answered are frozen records, never objects of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue.states import JobStatus
from sa_jobqueue.store import inspection
from sa_jobqueue.store.sessions import connection_of, run_on
from sa_jobqueue.views import JobFilter

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sa_jobqueue.views import JobDetails, JobPage, Stats

    SyncTarget = Session | scoped_session[Any] | Connection
    AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection


@overload
def list_jobs(
    target: SyncTarget,
    *,
    statuses: Iterable[str] = (),
    kinds: Iterable[str] = (),
    queues: Iterable[str] = (),
    ids: Iterable[int] | None = None,
    key: str | None = None,
    due: bool = False,
    limit: int = 50,
    before: int | None = None,
) -> JobPage: ...


@overload
def list_jobs(
    target: AsyncTarget,
    *,
    statuses: Iterable[str] = (),
    kinds: Iterable[str] = (),
    queues: Iterable[str] = (),
    ids: Iterable[int] | None = None,
    key: str | None = None,
    due: bool = False,
    limit: int = 50,
    before: int | None = None,
) -> Coroutine[Any, Any, JobPage]: ...


def list_jobs(
    target: Any,
    *,
    statuses: Iterable[str] = (),
    kinds: Iterable[str] = (),
    queues: Iterable[str] = (),
    ids: Iterable[int] | None = None,
    key: str | None = None,
    due: bool = False,
    limit: int = 50,
    before: int | None = None,
) -> JobPage | Coroutine[Any, Any, JobPage]:
    """The newest jobs that fit everything that is given, by id, at most `limit`; `before` is the last page's own.

    `due` means ready jobs whose time has come. A call looks at a million jobs at most; ids, a held key, and statuses of few
    jobs are found by an index wherever they lie. A page that has a `before` is not the last, even when it is short.
    Payloads and whole errors are in `get_job`. With an async target this is a coroutine. Raises ValueError for a status
    that there is not, for `due` with other statuses than ready, and for a limit below 1; TypeError for another target.
    """
    for name, value in (("statuses", statuses), ("kinds", kinds), ("queues", queues)):
        if isinstance(value, str):
            raise TypeError(f"list_jobs(): {name}={value!r}: pass a list of names")
    if type(limit) is not int or limit < 1:
        raise ValueError(f"list_jobs(): limit={limit!r}: must be a whole number from 1 on")
    wanted = JobFilter(
        statuses=tuple(map(JobStatus, statuses)),
        kinds=tuple(kinds),
        queues=tuple(queues),
        ids=None if ids is None else tuple(ids),
        key=key,
        due=due,
    )

    def work(given: Session | Connection) -> JobPage:
        return inspection.page(connection_of(given), wanted, limit=limit, before=before)

    return run_on(target, work, caller="list_jobs")


@overload
def get_job(target: SyncTarget, job_id: int) -> JobDetails | None: ...


@overload
def get_job(target: AsyncTarget, job_id: int) -> Coroutine[Any, Any, JobDetails | None]: ...


def get_job(target: Any, job_id: int) -> JobDetails | Coroutine[Any, Any, JobDetails | None] | None:
    """One job whole, with payload, result and the last errors; None when there is no such job.

    With an async target this is a coroutine. Raises TypeError for another target.
    """

    def work(given: Session | Connection) -> JobDetails | None:
        return inspection.details(connection_of(given), job_id)

    return run_on(target, work, caller="get_job")


@overload
def stats(target: SyncTarget, *, exact: bool = False) -> Stats: ...


@overload
def stats(target: AsyncTarget, *, exact: bool = False) -> Coroutine[Any, Any, Stats]: ...


def stats(target: Any, *, exact: bool = False) -> Stats | Coroutine[Any, Any, Stats]:
    """The numbers of every queue: due, scheduled, running, expired, done, dead, cancelled, and how old the oldest are.

    Ready and running jobs are counted exactly, through their indexes. Of each finished status 100,000 are counted, and
    `at_least` says of which there are more; `exact` counts them all, which reads all of the history. With an async target
    this is a coroutine. Raises TypeError for another target.
    """
    most = None if exact else inspection.COUNTED

    def work(given: Session | Connection) -> Stats:
        return inspection.read_stats(connection_of(given), most=most)

    return run_on(target, work, caller="stats")
