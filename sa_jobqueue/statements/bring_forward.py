"""Bring forward: the next job of the future is due now. For tests, in which nobody waits for a backoff."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Text, any_, false, func, select, true, update

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array, moment, number, readable, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Update


@cache
def bring_forward() -> Update:
    """Ready stays ready, of the job that would be due next. Parameters: `kinds`, `queues` (NULL for all).

    Tells its id, when it was due, how far away that was, and whether it would have expired by then.
    """
    schema_in_use()
    job = jobs.alias("job")
    following = (
        select(
            job.c.id,
            readable(job.c.run_at).label("run_at"),
            (readable(job.c.run_at) - moment()).label("ahead"),
            func.coalesce(job.c.expires_at <= job.c.run_at, false()).label("expired"),
        )
        .where(
            job.c.status == status(JobStatus.READY),
            job.c.kind == any_(array("kinds", Text)),
            func.coalesce(job.c.queue == any_(array("queues", Text)), true()),
            job.c.run_at > moment(),
        )
        .order_by(job.c.run_at, job.c.priority, job.c.id)
        .limit(number(1))
        .with_for_update(key_share=True, skip_locked=True)
        .cte("following")
        .prefix_with("MATERIALIZED")
    )
    return (
        update(jobs)
        .where(jobs.c.id == following.c.id)
        .values(run_at=moment(), updated_at=moment())
        .returning(following.c.id, following.c.run_at, following.c.ahead, following.c.expired)
    )
