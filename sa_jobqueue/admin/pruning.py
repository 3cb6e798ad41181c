"""Deleting finished jobs by hand, one batch at a time; runners do it by themselves, as their retention says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue.store import pruning
from sa_jobqueue.store.sessions import connection_of, run_on

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import timedelta

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sa_jobqueue.records import Pruned, PrunePosition
    from sa_jobqueue.states import JobStatus

    SyncTarget = Session | scoped_session[Any] | Connection
    AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection


@overload
def prune(
    target: SyncTarget,
    *,
    status: JobStatus,
    older_than: timedelta,
    limit: int = 500,
    position: PrunePosition | None = None,
) -> Pruned: ...


@overload
def prune(
    target: AsyncTarget,
    *,
    status: JobStatus,
    older_than: timedelta,
    limit: int = 500,
    position: PrunePosition | None = None,
) -> Coroutine[Any, Any, Pruned]: ...


def prune(
    target: Any,
    *,
    status: JobStatus,
    older_than: timedelta,
    limit: int = 500,
    position: PrunePosition | None = None,
) -> Pruned | Coroutine[Any, Any, Pruned]:
    """Delete one batch of jobs of one terminal status that finished longer than `older_than` ago, the oldest first.

    Commit after each batch, and give the answer's `position` to the next one while there is `more`. Rows that somebody
    has locked are skipped. Jobs that the database refuses to delete (an application's foreign key, a trigger) are
    counted and stop nobody. Raises ValueError for a status that is not terminal, a negative duration, a limit outside 1
    to 10,000, and TypeError for any other target. With an async target this is a coroutine.
    """
    return run_on(
        target,
        lambda sync: pruning.prune(
            connection_of(sync), status=status, older_than=older_than, limit=limit, position=position
        ),
        caller="prune",
    )


@overload
def count_prunable(target: SyncTarget, *, status: JobStatus, older_than: timedelta) -> int: ...


@overload
def count_prunable(
    target: AsyncTarget, *, status: JobStatus, older_than: timedelta
) -> Coroutine[Any, Any, int]: ...


def count_prunable(
    target: Any, *, status: JobStatus, older_than: timedelta
) -> int | Coroutine[Any, Any, int]:
    """How many jobs of this status finished longer than `older_than` ago. Raises as `prune` does."""
    return run_on(
        target,
        lambda sync: pruning.count_prunable(connection_of(sync), status=status, older_than=older_than),
        caller="count_prunable",
    )
