"""Who owns these jobs now, and which are a token's? Read without a lock, after a fenced write left rows out."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Uuid, any_, bindparam, cast, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import keys, moment, status
from sa_jobqueue.states import JobStatus

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


@cache
def of_token() -> Executable:
    """The ids of the running jobs that carry `token`."""
    schema_in_use()
    token = cast(bindparam("token", type_=Uuid), Uuid)
    # The status leads into the small index of running jobs: none has the tokens.
    return select(jobs.c.id).where(jobs.c.status == status(JobStatus.RUNNING), jobs.c.lease_token == token)
