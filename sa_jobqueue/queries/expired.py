"""Which running jobs have outlived their lease?

Under an old snapshot this walks over the index entries of all leases that ended since, 0.11 ms for each thousand. A
sweep every few seconds can afford that; marks would hide what a sweep has left out, locked or refused, from the next one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import DateTime, Integer, bindparam, cast, func, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import interval, moment, status
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from sqlalchemy import Executable


@cache
def expired() -> Executable:
    """Leases past by more than `margin`, the longest past first, at most `amount` after the first `passed`.

    None within one `lease` of the server's start: the runners must be given the time to come back and renew.
    """
    schema_in_use()
    started = func.pg_postmaster_start_time(type_=DateTime(timezone=True))
    return (
        select(
            jobs.c.id,
            jobs.c.lease_token,
            jobs.c.kind,
            jobs.c.queue,
            jobs.c.attempts,
            jobs.c.returned,
            jobs.c.max_attempts,
            jobs.c.leased_by,
        )
        .where(
            jobs.c.status == status(JobStatus.RUNNING),
            jobs.c.lease_until < moment() - interval("margin"),
            started < moment() - interval("lease"),
        )
        .order_by(jobs.c.lease_until, jobs.c.id)
        .offset(cast(bindparam("passed", type_=Integer), Integer))
        .limit(cast(bindparam("amount", type_=Integer), Integer))
    )
