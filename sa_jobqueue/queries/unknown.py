"""Due jobs of kinds that nobody here handles: how many of each, counted up to a limit."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, all_, any_, bindparam, func, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array, moment, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Select


@cache
def unknown_kinds() -> Select[*tuple[Any, ...]]:
    """Kind and count over at most `amount` due jobs of `queues` whose kind is none of `kinds`."""
    schema_in_use()
    due = (
        select(jobs.c.kind)
        .where(
            jobs.c.status == status(JobStatus.READY),
            jobs.c.queue == any_(array("queues", Text)),
            jobs.c.run_at <= moment(),
            jobs.c.kind != all_(array("kinds", Text)),
        )
        .limit(bindparam("amount", type_=BigInteger))
        .subquery("due")
    )
    return select(due.c.kind, func.count()).group_by(due.c.kind).order_by(due.c.kind)
