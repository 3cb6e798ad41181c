"""Prune: finished jobs whose time is over are deleted, the longest finished first.

The rows are taken FOR UPDATE: with anything less a DELETE waits for an application's foreign key on one of them. Skipped
are rows that somebody else holds, so that pruners share the work and wait for nobody. What hangs on a row by a foreign
key is the application's, and may be locked: `patience` bounds each such wait.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, Text, any_, bindparam, case, cast, delete, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import instant, interval, keys, moment, readable, status, word

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable, SelectBase

    from sa_jobqueue.states import JobStatus


@cache
def prune(of: JobStatus) -> Executable:
    """Deletes the longest finished jobs of one terminal status. Parameters: `age`, `since`, `amount`, `patience`.

    Only jobs that finished longer than `age` ago, and not before `since` (NULL: from the beginning).
    """
    schema_in_use()
    job = jobs.alias("job")
    return _delete(
        select(job.c.id)
        .where(
            job.c.status == status(of),
            job.c.finished_at < moment() - interval("age"),
            job.c.finished_at >= instant("since"),
        )
        # Without the id, which the index lacks: after a mass cancellation each batch would sort all that finished then.
        .order_by(job.c.finished_at)
        .limit(cast(bindparam("amount", type_=Integer), Integer))
        .with_for_update(skip_locked=True)
    )


@cache
def prune_listed(of: JobStatus) -> Executable:
    """Deletes those of `ids` that are still of this status and old enough. Parameters: `ids`, `age`, `patience`."""
    schema_in_use()
    job = jobs.alias("job")
    # Status and age in one expression that no index knows: the ids are few, and the way to them is the primary key.
    still = case((job.c.finished_at < moment() - interval("age"), job.c.status)) == status(of)
    return _delete(
        select(job.c.id)
        .where(job.c.id == any_(keys("ids", BigInteger)), still)
        .order_by(job.c.id)
        .with_for_update(skip_locked=True)
    )


def _delete(ids: SelectBase) -> Executable:
    return (
        delete(jobs)
        .where(
            jobs.c.id == any_(func.ARRAY(ids.scalar_subquery(), type_=ARRAY(BigInteger, dimensions=1))),
            _patience(),
        )
        .returning(jobs.c.id, readable(jobs.c.finished_at).label("finished_at"))
    )


def _patience() -> ColumnElement[Any]:
    """Sets how long this transaction waits for a lock; NULL leaves it as it is. Evaluated once, before any row."""
    name = word("lock_timeout")
    given = func.coalesce(cast(bindparam("patience", type_=Text), Text), func.current_setting(name))
    return select(func.set_config(name, given, true())).scalar_subquery().is_not(None)
