"""Claim: ready to running, a fresh token, one attempt more. Why it has this shape stands in the package's docstring."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

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
from sa_jobqueue.sql import array, interval, keys, moment, number, readable, status
from sa_jobqueue.statements.parts import one_more_start
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Select, SelectBase, Update


def _chosen(*, locked: bool) -> Select[Any]:
    """What is next: at most a queue's quota from each queue, by priority, due time and id.

    Locked, the ids alone, and no more rows are locked than these; else queue and id.
    """
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
    head = (
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
        .correlate(wanted, level)
    )
    due = (head.with_for_update(skip_locked=True) if locked else head).lateral("due")
    # The series is scanned upwards, and with it the priorities: the plan test holds that.
    taken = (
        select(due.c.id)
        .select_from(level.join(due, true()))
        .limit(wanted.c.quota)
        .correlate(wanted)
        .lateral("taken")
    )
    columns = (taken.c.id,) if locked else (wanted.c.queue, taken.c.id)
    return select(*columns).select_from(wanted.join(taken, true()))


@cache
def candidates() -> Select[Any]:
    """Queue and id of the due jobs that a claim would come to, in its order, without a lock.

    Parameters: `queues` and `quotas` (parallel arrays), `kinds`.
    """
    schema_in_use()
    return _chosen(locked=False)


@cache
def claim() -> Update:
    """Takes due jobs of the given kinds from the given queues.

    Parameters: `queues` and `quotas` (parallel arrays), `kinds`, `token`, `lease`, `runner`. The answer has no order.
    A job whose `expires_at` is past is claimed as well and says so: the runner then aborts it under its token.
    """
    schema_in_use()
    return _take(_chosen(locked=True))


@cache
def claim_listed() -> Update:
    """Takes those of `ids` that are still ready and due. Parameters: `ids`, `token`, `lease`, `runner`."""
    schema_in_use()
    job = jobs.alias("job")
    # Ready, said without its name: that would bring the large partial index in, where the ids are few.
    ready = (job.c.lease_token.is_(None), job.c.finished_at.is_(None), job.c.run_at <= moment())
    return _take(
        select(job.c.id)
        .where(job.c.id == any_(keys("ids", BigInteger)), *ready)
        .order_by(job.c.id)
        .with_for_update(skip_locked=True)
    )


def _take(ids: SelectBase) -> Update:
    return (
        update(jobs)
        .where(jobs.c.id == any_(func.ARRAY(ids.scalar_subquery(), type_=ARRAY(BigInteger, dimensions=1))))
        .values(
            status=status(JobStatus.RUNNING),
            attempts=one_more_start(),
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
            # An odd row must not cost every job of the claim an attempt.
            readable(jobs.c.run_at).label("run_at"),
            readable(jobs.c.created_at).label("created_at"),
            jobs.c.idempotency_key,
            func.coalesce(jobs.c.expires_at <= moment(), false()).label("expired"),
        )
    )
