"""Which finished jobs are old enough to go?"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, bindparam, cast, func, select, tuple_

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import instant, interval, moment, readable, status

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable

    from sa_jobqueue.states import JobStatus


@cache
def page(of: JobStatus) -> Executable:
    """The longest finished of one status behind (`since`, `behind`), at most `amount`. Parameters: these and `age`."""
    schema_in_use()
    position = tuple_(instant("since"), cast(bindparam("behind", type_=BigInteger), BigInteger))
    return (
        select(jobs.c.id, readable(jobs.c.finished_at).label("finished_at"))
        .where(*_old_enough(of), tuple_(jobs.c.finished_at, jobs.c.id) > position)
        .order_by(jobs.c.finished_at, jobs.c.id)
        .limit(cast(bindparam("amount", type_=Integer), Integer))
    )


@cache
def count(of: JobStatus) -> Executable:
    """How many of one status there are. Parameter: `age`. Reads their part of the index, however long that is."""
    schema_in_use()
    return select(func.count()).select_from(jobs).where(*_old_enough(of))


def _old_enough(of: JobStatus) -> tuple[ColumnElement[Any], ...]:
    return jobs.c.status == status(of), jobs.c.finished_at < moment() - interval("age")
