"""Rescue: jobs whose lease ran out go back to ready with a backoff, or come to rest."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import INTERVAL

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import interval, moment, word
from sa_jobqueue.statements.parts import exhausted, failure, held, rest
from sa_jobqueue.states import Verb

if TYPE_CHECKING:
    from sqlalchemy import Update


@cache
def rescue() -> Update:
    """Takes jobs back from lost runners. Parameters: `ids`, `tokens`, `delays`, `margin`.

    Fenced by the token that was read and by the lease being past by more than `margin`, so that a renewal or another
    rescue in between wins. `settled_token` stays: the lost runner settled nothing.
    """
    schema_in_use()
    mine = held(lambda job: job.c.lease_until < moment() - interval("margin"), delay=INTERVAL)
    lost = word("runner ") + func.coalesce(jobs.c.leased_by, word("without a name"))
    return (
        update(jobs)
        .where(jobs.c.id == mine.c.id)
        .values(
            **rest(dead_when=exhausted(), ready_at=moment() + mine.c.delay, reason=word("exhausted")),
            **failure(lost + word(" was lost (lease expired)"), Verb.RESCUE),
        )
        .returning(mine.c.position, jobs.c.status)
    )
