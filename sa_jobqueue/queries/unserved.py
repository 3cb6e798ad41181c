"""Due jobs in queues that this runner does not serve, of kinds that it handles: somebody may wait for them in vain."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Text, all_, any_, func, select, true

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.queries.heads import head
from sa_jobqueue.sql import array, number, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import CTE, ColumnElement, Executable

#: So many queues with ready jobs are looked at, by their names.
MOST_QUEUES = 200


@cache
def unserved() -> Executable:
    """Queue, kind and count among the first `amount` due jobs of each queue but `queues`, of kinds among `kinds`."""
    schema_in_use()
    others = _queues_with_ready_jobs()
    first = head(others)
    return (
        select(others.c.queue, first.c.kind, func.count())
        .select_from(others.join(first, true()))
        .where(others.c.queue != all_(array("queues", Text)), first.c.kind == any_(array("kinds", Text)))
        .group_by(others.c.queue, first.c.kind)
        .order_by(others.c.queue, first.c.kind)
    )


def _queues_with_ready_jobs() -> CTE:
    """From each name straight to the next one in the index: DISTINCT would read every ready job."""
    ready = jobs.alias("ready")

    def next_queue(*beyond: ColumnElement[bool]) -> ColumnElement[str]:
        return (
            select(ready.c.queue)
            .where(ready.c.status == status(JobStatus.READY), *beyond)
            .order_by(ready.c.queue)
            .limit(number(1))
            .scalar_subquery()
        )

    found = select(next_queue().label("queue"), number(1).label("rank")).cte("found", recursive=True)
    return found.union_all(
        select(next_queue(ready.c.queue > found.c.queue), found.c.rank + number(1)).where(
            found.c.queue.is_not(None), found.c.rank < number(MOST_QUEUES)
        )
    )
