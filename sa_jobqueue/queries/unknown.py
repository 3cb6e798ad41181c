"""Due jobs of kinds that nobody here handles: how many of each stand at the head of their queues, and what is behind."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    SmallInteger,
    Text,
    all_,
    any_,
    bindparam,
    cast,
    column,
    func,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.queries.heads import head
from sa_jobqueue.records import HIGHEST_PRIORITY, LOWEST_PRIORITY
from sa_jobqueue.sql import array, moment, number, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Executable


@cache
def unknown_kinds() -> Executable:
    """Queue, kind and count among the first `amount` due jobs of each of `queues`, of kinds that are none of `kinds`.

    What nobody takes stays at the head, so that a bounded look finds it.
    """
    schema_in_use()
    served = func.unnest(array("queues", Text)).table_valued(column("queue", Text)).render_derived("served")
    first = head(served)
    return (
        select(served.c.queue, first.c.kind, func.count())
        .select_from(served.join(first, true()))
        .where(first.c.kind != all_(array("kinds", Text)))
        .group_by(served.c.queue, first.c.kind)
        .order_by(served.c.queue, first.c.kind)
    )


@cache
def waiting() -> Executable:
    """Id and kind of the due jobs of these `kinds` in one `queue`, in claim order, `amount` after the first `passed`.

    Left out are kinds that somebody has in work: of such a kind a job runs under a lease that is not past.
    """
    schema_in_use()
    amount, passed = (cast(bindparam(name, type_=BigInteger), BigInteger) for name in ("amount", "passed"))
    level = (
        func.generate_series(number(HIGHEST_PRIORITY), number(LOWEST_PRIORITY))
        .table_valued(column("priority", SmallInteger))
        .render_derived(name="level")
    )
    job = jobs.alias("job")
    # One branch for each priority, as in the claim and for its reasons.
    due = (
        select(job.c.id, job.c.kind)
        .where(
            job.c.status == status(JobStatus.READY),
            job.c.queue == cast(bindparam("queue", type_=Text), Text),
            job.c.priority == level.c.priority,
            job.c.kind == any_(array("kinds", Text)),
            job.c.kind != all_(_in_work()),
            job.c.run_at <= moment(),
        )
        .order_by(job.c.run_at, job.c.id)
        .limit(amount + passed)
        .correlate(level)
        .lateral("due")
    )
    return select(due.c.id, due.c.kind).select_from(level.join(due, true())).offset(passed).limit(amount)


def _in_work() -> ColumnElement[Sequence[str]]:
    """The kinds that run, read once from the small index of running jobs."""
    running = jobs.alias("running")
    kinds = (
        select(running.c.kind)
        .where(running.c.status == status(JobStatus.RUNNING), running.c.lease_until > moment())
        .distinct()
    )
    return func.ARRAY(kinds.scalar_subquery(), type_=ARRAY(Text, dimensions=1))
