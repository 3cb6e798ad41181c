"""Who waits for jobs: what makes the trigger notify new ones, and what ends it."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime, Text, any_, bindparam, cast, column, delete, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, insert

from sa_jobqueue.models import idle, jobs, schema_in_use
from sa_jobqueue.sql import array, interval, moment, number, priorities, status, word
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Delete, Executable

#: What a lost runner has left behind is swept away after this time.
LEFTOVER = timedelta(hours=1)
#: A flag is good for at least this time, so that one that stands is seldom written: every INSERT of jobs reads the table,
#: and while some transaction holds an old snapshot each version of each row stays there. A runner that is killed leaves
#: its flag behind for as long.
SHORTEST = timedelta(minutes=1)


@cache
def wait_for_jobs() -> Executable:
    """Say that this runner waits, and read how many others do and when its next job is due (an interval, or NULL).

    Parameters: `runner`, `wait` (the flag is good for so long and at least a minute, or for half of that when it was set
    shortly before; jobs due later than `wait` are not looked for), `queues`, `kinds`.
    """
    schema_in_use()
    # By the wall clock, as the trigger reads it.
    clock = func.clock_timestamp(type_=DateTime(timezone=True))
    lasts = func.greatest(interval("wait"), _span(SHORTEST))
    flag = insert(idle).values(runner_id=_runner(), waiting_until=clock + lasts)
    others = select(func.count()).where(idle.c.waiting_until > moment(), idle.c.runner_id != _runner())
    flagged = flag.on_conflict_do_update(
        index_elements=[idle.c.runner_id],
        set_={"waiting_until": flag.excluded.waiting_until},
        where=idle.c.waiting_until - clock < lasts - (idle.c.waiting_until - clock),
    )
    return select(
        others.scalar_subquery().label("others"), (_next_due() - moment()).label("next_due")
    ).add_cte(flagged.cte("flag"), _leftovers().cte("swept"))


@cache
def stop_waiting() -> Executable:
    """Say that it waits no more. Parameter: `runner`."""
    schema_in_use()
    return delete(idle).where(idle.c.runner_id == _runner()).returning(idle.c.runner_id)


def _runner() -> ColumnElement[str]:
    return cast(bindparam("runner", type_=Text), Text)


def _span(duration: timedelta) -> ColumnElement[Any]:
    """A constant in the text."""
    return cast(word(f"{duration.total_seconds():.0f} s"), INTERVAL)


def _next_due() -> ColumnElement[Any]:
    """The first due time among the future ones within `wait`, by the index: one branch per queue and priority."""
    wanted = (
        func.unnest(array("queues", Text)).table_valued(column("queue", Text)).render_derived(name="wanted")
    )
    level = priorities()
    job = jobs.alias("job")
    first = (
        select(job.c.run_at)
        .where(
            job.c.status == status(JobStatus.READY),
            job.c.queue == wanted.c.queue,
            job.c.priority == level.c.priority,
            job.c.kind == any_(array("kinds", Text)),
            job.c.run_at > moment(),
            job.c.run_at <= moment() + interval("wait"),
        )
        .order_by(job.c.run_at)
        .limit(number(1))
        .correlate(wanted, level)
        .lateral("first")
    )
    return (
        select(func.min(first.c.run_at))
        .select_from(wanted.join(level, true()).join(first, true()))
        .scalar_subquery()
    )


def _leftovers() -> Delete:
    """Rows whose runners are gone, save those that somebody else is sweeping just now."""
    old = (
        select(idle.c.runner_id)
        .where(
            idle.c.waiting_until < moment() - _span(LEFTOVER),
            idle.c.runner_id != _runner(),
        )
        .with_for_update(skip_locked=True)
    )
    return delete(idle).where(
        idle.c.runner_id == any_(func.ARRAY(old.scalar_subquery(), type_=ARRAY(Text, dimensions=1)))
    )
