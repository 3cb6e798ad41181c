"""Reschedule: a person gives a waiting job another due time or priority."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import DateTime, SmallInteger, bindparam, cast, func, true, update

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import interval, moment, status
from sa_jobqueue.statements.parts import named, outcomes
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Select

_TIMESTAMP = DateTime(timezone=True)


@cache
def reschedule() -> Select[tuple[int, str, str | None, bool]]:
    """Ready stays ready. Parameters: `ids`, and `run_at`, `delay` and `priority`, each NULL where it is to stay.

    A delay counts from the start of this statement. A job that expires by its new due time is left as it is, since it
    could never start; `fits` tells.
    """
    schema_in_use()
    rows = named(lambda job: job.c.expires_at)
    due = func.coalesce(
        cast(bindparam("run_at", type_=_TIMESTAMP), _TIMESTAMP),
        moment() + interval("delay"),
        type_=_TIMESTAMP,
    )
    # NULL where no due time is given, or where the job never expires.
    fits = func.coalesce(rows.c.expires_at > due, true())
    priority = cast(bindparam("priority", type_=SmallInteger), SmallInteger)
    changes = (
        update(jobs)
        .where(rows.c.status == status(JobStatus.READY), fits)
        .values(
            run_at=func.coalesce(due, jobs.c.run_at),
            priority=func.coalesce(priority, jobs.c.priority),
            updated_at=moment(),
        )
    )
    return outcomes(rows, changes, fits.label("fits"))
