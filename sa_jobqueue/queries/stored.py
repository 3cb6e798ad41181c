"""Jobs as they are stored, for a test to look at."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, any_, bindparam, cast, func, select, true

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array, readable

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable


@cache
def stored_jobs() -> Executable:
    """Jobs of these kinds, queues and statuses, the newest first. Parameters: `kinds`, `queues`, `statuses`, `amount`.

    Each may be NULL: any kind, queue or status, however many.
    """
    schema_in_use()

    def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        return func.coalesce(column == any_(array(name, Text)), true())

    return (
        select(
            jobs.c.id,
            jobs.c.kind,
            jobs.c.payload,
            jobs.c.queue,
            jobs.c.status,
            jobs.c.priority,
            readable(jobs.c.run_at).label("run_at"),
            readable(jobs.c.created_at).label("created_at"),
            (jobs.c.attempts - jobs.c.returned).label("attempt"),
            jobs.c.max_attempts,
            jobs.c.idempotency_key,
            jobs.c.reason,
            jobs.c.last_error,
        )
        .where(
            among(jobs.c.kind, "kinds"),
            among(jobs.c.queue, "queues"),
            among(jobs.c.status, "statuses"),
        )
        .order_by(jobs.c.id.desc())
        .limit(cast(bindparam("amount", type_=BigInteger), BigInteger))
    )
