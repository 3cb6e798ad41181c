"""Claim: ready to running, a fresh token, one attempt more. Why it has this shape stands in the package's docstring."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Integer,
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
    tuple_,
    update,
)

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.records import PRIORITIES, SMALLEST_ID
from sa_jobqueue.sql import array, element, interval, keys, moment, number, priorities, readable, status
from sa_jobqueue.statements.parts import among, one_more_start, still_due
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, FromClause, Select, SelectBase, Update


def _chosen(*, locked: bool) -> Select[Any]:
    """What is next: at most a queue's quota from each queue, by priority, due time and id.

    Behind the marks, where there are any. Locked, the ids alone, and no more rows are locked than these; else queue
    and id. NO KEY UPDATE as in `held`: a row of an application that is being written and points at a job hides it from
    nobody.
    """
    wanted = (
        func.unnest(array("queues", Text), array("quotas", Integer))
        .table_valued(column("queue", Text), column("quota", Integer), with_ordinality="position")
        .render_derived(name="wanted")
    )
    level = priorities()
    job = jobs.alias("job")
    head = (
        select(job.c.id)
        .where(
            job.c.status == status(JobStatus.READY),
            job.c.queue == wanted.c.queue,
            job.c.priority == level.c.priority,
            job.c.kind == any_(array("kinds", Text)),
            job.c.run_at <= moment(),
            tuple_(job.c.run_at, job.c.id) > _mark(wanted, level),
        )
        .order_by(job.c.run_at, job.c.id)
        .limit(wanted.c.quota)
        .correlate(wanted, level)
    )
    due = (head.with_for_update(key_share=True, skip_locked=True) if locked else head).lateral("due")
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


def _mark(wanted: FromClause, level: FromClause) -> ColumnElement[Any]:
    """The due time and id behind which a branch begins: one of so many for each queue, in the order of priorities.

    A comparison of rows is one bound of the index, so that what lies before it is not read.
    """
    place = (wanted.c.position - number(1)) * number(PRIORITIES) + level.c.priority
    return tuple_(
        element("low_times", DateTime, place, missing="-infinity"),
        element("low_ids", BigInteger, place, missing=str(SMALLEST_ID)),
    )


@cache
def candidates() -> Select[Any]:
    """Queue and id of the due jobs that a claim would come to, in its order, without a lock.

    Parameters: `queues` and `quotas` (parallel arrays), `kinds`, and the marks as of a claim.
    """
    schema_in_use()
    return _chosen(locked=False)


@cache
def claim() -> Update:
    """Takes due jobs of the given kinds from the given queues.

    Parameters: `queues` and `quotas` (parallel arrays), `kinds`, `token`, `lease`, `runner`. The answer has no order.
    A job whose `expires_at` is past is claimed as well and says so: the runner then aborts it under its token.

    `low_times` and `low_ids` (parallel arrays) hold a mark for each priority of the first queue, then of the second
    and so on: what is due earlier, or then with a lower or the same id, is not looked at. Without them, and where one
    is None, a look begins with the first job.
    """
    schema_in_use()
    return _take(_chosen(locked=True))


@cache
def claim_listed() -> Update:
    """Takes those of `ids` that are still ready and due. Parameters: `ids`, `token`, `lease`, `runner`."""
    schema_in_use()
    job = jobs.alias("job")
    return _take(
        select(job.c.id)
        .where(job.c.id == any_(keys("ids", BigInteger)), *still_due(job))
        .order_by(job.c.id)
        .with_for_update(key_share=True, skip_locked=True)
    )


def _take(ids: SelectBase) -> Update:
    return (
        update(jobs)
        .where(among(ids))
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
            # As text, for whoever reads it is to know how large it is.
            cast(jobs.c.payload, Text).label("payload"),
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
            jobs.c.key_scope,
        )
    )
