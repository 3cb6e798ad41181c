"""Whether one job has come to its end, and to which: what somebody who waits for it asks again and again."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, bindparam, case, cast, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.queries.summary import readable_or_null

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable


@cache
def ending() -> Executable:
    """What `FinishedJob` holds of the job `id`; of one that has not finished its status and `finished_at` NULL alone."""
    schema_in_use()
    return select(
        jobs.c.id,
        jobs.c.kind,
        jobs.c.status,
        _at_the_end(jobs.c.result).label("result"),
        _at_the_end(jobs.c.reason).label("reason"),
        _at_the_end(jobs.c.last_error).label("last_error"),
        readable_or_null(jobs.c.finished_at).label("finished_at"),
    ).where(jobs.c.id == cast(bindparam("id", type_=BigInteger), BigInteger))


def _at_the_end(large: ColumnElement[Any]) -> ColumnElement[Any]:
    """Large values are sent once, not with every look."""
    return case((jobs.c.finished_at.is_not(None), large))
