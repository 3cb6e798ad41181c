"""Renew: running stays running, the lease ends later."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import func, update

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import interval, moment
from sa_jobqueue.statements.parts import held

if TYPE_CHECKING:
    from sqlalchemy import Update


@cache
def renew() -> Update:
    """Extends the leases that still carry their token, expired ones too: a lease that nobody took is alive again.

    Parameters: `ids`, `tokens`, `lease`. Never shortens a lease. Answers the batch position and whether an operator
    asked for the cancellation.
    """
    schema_in_use()
    mine = held()
    return (
        update(jobs)
        .where(jobs.c.id == mine.c.id)
        .values(
            lease_until=func.greatest(jobs.c.lease_until, moment() + interval("lease")), updated_at=moment()
        )
        .returning(mine.c.position, jobs.c.cancel_requested_at.is_not(None).label("cancel_requested"))
    )
