"""How many jobs has each queue in each status, and how old are the oldest? Counted through the partial indexes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, bindparam, cast, func, select, union_all

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import moment, readable, status
from sa_jobqueue.states import TERMINAL, JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Executable


@cache
def waiting() -> Executable:
    """Per queue the due and the scheduled jobs and the earliest due time. Exact: reads the whole ready index."""
    schema_in_use()
    due = jobs.c.run_at <= moment()
    return (
        select(
            jobs.c.queue,
            func.count().filter(due).label("due"),
            func.count().filter(~due).label("scheduled"),
            readable(func.coalesce(func.min(jobs.c.run_at).filter(due), moment())).label("first_due"),
        )
        .where(jobs.c.status == status(JobStatus.READY))
        .group_by(jobs.c.queue)
    )


@cache
def running() -> Executable:
    """Per queue the running jobs, those with a past lease, and the earliest due time. Exact: reads all running rows."""
    schema_in_use()
    return (
        select(
            jobs.c.queue,
            func.count().label("running"),
            func.count().filter(jobs.c.lease_until <= moment()).label("expired"),
            readable(func.min(jobs.c.run_at)).label("first_due"),
        )
        .where(jobs.c.status == status(JobStatus.RUNNING))
        .group_by(jobs.c.queue)
    )


@cache
def finished() -> Executable:
    """Per finished status and queue the number of jobs, of each status at most `most` counted; NULL counts them all."""
    schema_in_use()
    branches = []
    for wanted in TERMINAL:
        job = jobs.alias(f"{wanted}_job")
        some = (
            select(job.c.queue)
            .where(job.c.status == status(wanted), job.c.finished_at.is_not(None))
            # In the order of the index, or a planner without statistics gathers all of them first.
            .order_by(job.c.finished_at.desc())
            .limit(cast(bindparam("most", type_=BigInteger), BigInteger))
            .subquery(f"{wanted}_jobs")
        )
        branches.append(
            select(status(wanted).label("status"), some.c.queue, func.count().label("number")).group_by(
                some.c.queue
            )
        )
    return union_all(*branches)
