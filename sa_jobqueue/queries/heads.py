"""The heads of queues: their first due jobs in the order of claims, a bounded number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, SmallInteger, bindparam, cast, column, func, select, true

from sa_jobqueue.models import jobs
from sa_jobqueue.records import HIGHEST_PRIORITY, LOWEST_PRIORITY
from sa_jobqueue.sql import moment, number, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import FromClause


def head(queues: FromClause) -> FromClause:
    """The kinds of the first `amount` due jobs of each queue in the column `queue` of `queues`, to be joined with it.

    One branch for each priority, as in the claim: across priorities all jobs of the future would be read.
    """
    amount = cast(bindparam("amount", type_=BigInteger), BigInteger)
    level = (
        func.generate_series(number(HIGHEST_PRIORITY), number(LOWEST_PRIORITY))
        .table_valued(column("priority", SmallInteger))
        .render_derived(name="level")
    )
    due = (
        select(jobs.c.kind)
        .where(
            jobs.c.status == status(JobStatus.READY),
            jobs.c.queue == queues.c.queue,
            jobs.c.priority == level.c.priority,
            jobs.c.run_at <= moment(),
        )
        .order_by(jobs.c.run_at, jobs.c.id)
        .limit(amount)
        .correlate(queues, level)
        .lateral("due")
    )
    return (
        select(due.c.kind)
        .select_from(level.join(due, true()))
        .limit(amount)
        .correlate(queues)
        .lateral("head")
    )
