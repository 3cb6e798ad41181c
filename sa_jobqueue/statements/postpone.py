"""Postpone: due jobs that nobody seems to be there for are moved out of the way of claims, ready to ready.

It is a reschedule, done by maintenance in place of a person, and no verb of its own: status, attempts, priority and key
stay, and whoever wants such a job sooner reschedules it. Why at all: a claim reads what is due in its queue until it has
found enough of its own kinds; with 100,000 jobs of another kind ahead each claim takes a tenth of a second, for ever.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, and_, cast, column, func, select, update
from sqlalchemy.dialects.postgresql import INTERVAL

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import interval, keys, moment, number, readable, word

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import ColumnElement, Update


@cache
def postpone() -> Update:
    """Moves those of `ids` that are still due, in the order of `ids`; answers position and new due time.

    Parameters: `ids`, `shortest`, `longest`. Rows that are locked, or that a runner or another postponement has got to
    first, are left out: nothing waits, and nothing is moved twice, for what was moved is no longer due.
    """
    schema_in_use()
    batch = (
        func.unnest(keys("ids", BigInteger))
        .table_valued(column("id", BigInteger), with_ordinality="position")
        .render_derived(name="batch")
    )
    job = jobs.alias("job")
    # Ready, said without its name: that would bring the large partial index in, where the ids are few.
    due = (job.c.lease_token.is_(None), job.c.finished_at.is_(None), job.c.run_at <= moment())
    held = (
        select(job.c.id, batch.c.position)
        .select_from(job.join(batch, and_(job.c.id == batch.c.id, *due)))
        .order_by(job.c.id)
        .with_for_update(key_share=True, skip_locked=True, of=job)
        .cte("held")
        .prefix_with("MATERIALIZED")
    )
    # The rank as microseconds: jobs of one batch that waited equally long come back in the order they had.
    rank = _times(cast(word("1 microsecond"), INTERVAL), held.c.position)
    return (
        update(jobs)
        .where(jobs.c.id == held.c.id)
        .values(run_at=moment() + _delay() + rank, updated_at=moment())
        .returning(held.c.position, jobs.c.run_at)
    )


def _delay() -> ColumnElement[timedelta]:
    """Twice the delay that the last write gave this job, between `shortest` and `longest`.

    The row itself remembers: every verb writes `updated_at`, and from there to `run_at` is what it gave. A job that was
    due at once begins with the shortest, and one that nobody ever comes for is touched ever more rarely, without a
    column that counts. Its age would be no measure: an old backlog, whose runner restarts, would be gone for the longest.
    """
    given = readable(jobs.c.run_at) - readable(jobs.c.updated_at)
    return func.greatest(func.least(_times(given, number(2)), interval("longest")), interval("shortest"))


def _times(duration: ColumnElement[timedelta], factor: ColumnElement[int]) -> ColumnElement[timedelta]:
    # SQLAlchemy's own operator has no interval with a factor; the precedence is that of a product.
    return duration.op("*", precedence=8, return_type=INTERVAL())(factor)
