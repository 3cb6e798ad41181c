"""Who owns these jobs now? Read without a lock, after a fenced write left rows out."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, any_, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import keys, moment

if TYPE_CHECKING:
    from sqlalchemy import Executable


@cache
def owners() -> Executable:
    """Id, status, lease token, last settling token and whether the lease is past, for `ids`; gone jobs have no row."""
    schema_in_use()
    return select(
        jobs.c.id,
        jobs.c.status,
        jobs.c.lease_token,
        jobs.c.settled_token,
        (jobs.c.lease_until <= moment()).label("past"),
    ).where(jobs.c.id == any_(keys("ids", BigInteger)))
