"""Claim: ready to running, a fresh token, one attempt more. Why it has this shape stands in the package's docstring."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Integer,
    SmallInteger,
    Text,
    Uuid,
    any_,
    bindparam,
    cast,
    column,
    false,
    func,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.records import HIGHEST_PRIORITY, LOWEST_PRIORITY
from sa_jobqueue.sql import array, interval, moment, number, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import SelectBase, Update


def _chosen() -> SelectBase:
    """The ids to take: at most a queue's quota from each queue, by priority, due time and id; no more rows are locked."""
    wanted = (
        func.unnest(array("queues", Text), array("quotas", Integer))
        .table_valued(column("queue", Text), column("quota", Integer))
        .render_derived(name="wanted")
    )
    level = (
        func.generate_series(number(HIGHEST_PRIORITY), number(LOWEST_PRIORITY))
        .table_valued(column("priority", SmallInteger))
        .render_derived(name="level")
    )
    job = jobs.alias("job")
    due = (
        select(job.c.id)
        .where(
            job.c.status == status(JobStatus.READY),
            job.c.queue == wanted.c.queue,
            job.c.priority == level.c.priority,
            job.c.kind == any_(array("kinds", Text)),
            job.c.run_at <= moment(),
        )
        .order_by(job.c.run_at, job.c.id)
        .limit(wanted.c.quota)
        .with_for_update(skip_locked=True)
        .correlate(wanted, level)
        .lateral("due")
    )
    # The series is scanned upwards, and with it the priorities: the plan test holds that.
    taken = (
        select(due.c.id)
        .select_from(level.join(due, true()))
        .limit(wanted.c.quota)
        .correlate(wanted)
        .lateral("taken")
    )
    return select(taken.c.id).select_from(wanted.join(taken, true()))


@cache
def claim() -> Update:
    """Takes due jobs of the given kinds from the given queues.

    Parameters: `queues` and `quotas` (parallel arrays), `kinds`, `token`, `lease`, `runner`. The answer has no order.
    A job whose `expires_at` is past is claimed as well and says so: the runner then aborts it under its token.
    """
    schema_in_use()
    started = jobs.c.attempts + number(1)
    return (
        update(jobs)
        .where(
            jobs.c.id == any_(func.ARRAY(_chosen().scalar_subquery(), type_=ARRAY(BigInteger, dimensions=1)))
        )
        .values(
            status=status(JobStatus.RUNNING),
            attempts=started,
            lease_token=cast(bindparam("token", type_=Uuid), Uuid),
            lease_until=moment() + interval("lease"),
            leased_by=cast(bindparam("runner", type_=Text), Text),
            updated_at=moment(),
        )
        .returning(
            jobs.c.id,
            jobs.c.kind,
            jobs.c.queue,
            jobs.c.payload,
            jobs.c.payload_version,
            jobs.c.priority,
            jobs.c.attempts,
            jobs.c.returned,
            jobs.c.max_attempts,
            jobs.c.run_at,
            jobs.c.created_at,
            jobs.c.idempotency_key,
            func.coalesce(jobs.c.expires_at <= moment(), false()).label("expired"),
        )
    )
