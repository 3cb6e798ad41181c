"""Which queues have due jobs? For who runs them one by one; a runner asks the claim alone."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Text, any_, func, select, true

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array, moment, number, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Executable


@cache
def due_queues() -> Executable:
    """The queues with due jobs of these kinds, by their first job: its priority, due time and id.

    Parameters: `kinds`, `queues` (NULL for all). Reads every such job: for the few jobs of a test.
    """
    schema_in_use()
    order = (jobs.c.priority, jobs.c.run_at, jobs.c.id)
    ranked = (
        select(
            jobs.c.queue,
            *order,
            func.row_number().over(partition_by=jobs.c.queue, order_by=order).label("place"),
        )
        .where(
            jobs.c.status == status(JobStatus.READY),
            jobs.c.kind == any_(array("kinds", Text)),
            func.coalesce(jobs.c.queue == any_(array("queues", Text)), true()),
            jobs.c.run_at <= moment(),
        )
        .subquery("ranked")
    )
    return (
        select(ranked.c.queue)
        .where(ranked.c.place == number(1))
        .order_by(ranked.c.priority, ranked.c.run_at, ranked.c.id)
    )
