"""Due jobs of kinds that nobody here handles: how many of each stand at the head of their queues."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Text, all_, bindparam, cast, column, func, select, true

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array, moment, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Executable


@cache
def unknown_kinds() -> Executable:
    """Kind and count among the first `amount` due jobs of each of `queues`, of kinds that are none of `kinds`.

    What nobody takes stays at the head, so that a bounded look finds it.
    """
    schema_in_use()
    served = func.unnest(array("queues", Text)).table_valued(column("queue", Text)).render_derived("served")
    head = (
        select(jobs.c.kind)
        .where(
            jobs.c.status == status(JobStatus.READY),
            jobs.c.queue == served.c.queue,
            jobs.c.run_at <= moment(),
        )
        .order_by(jobs.c.priority, jobs.c.run_at, jobs.c.id)
        .limit(cast(bindparam("amount", type_=BigInteger), BigInteger))
        .correlate(served)
        .lateral("head")
    )
    return (
        select(head.c.kind, func.count())
        .select_from(served.join(head, true()))
        .where(head.c.kind != all_(array("kinds", Text)))
        .group_by(head.c.kind)
        .order_by(head.c.kind)
    )
