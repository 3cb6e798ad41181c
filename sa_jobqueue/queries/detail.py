"""One job whole, its payload, result and errors included."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, bindparam, cast, select

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.queries.summary import readable_or_null, summary
from sa_jobqueue.sql import moment

if TYPE_CHECKING:
    from sqlalchemy import Select


@cache
def detail() -> Select[Any]:
    """Everything that `JobDetails` holds of the job `id`."""
    schema_in_use()
    return select(
        *summary(jobs),
        moment().label("now"),
        jobs.c.payload,
        jobs.c.payload_version,
        readable_or_null(jobs.c.expires_at).label("expires_at"),
        jobs.c.key_scope,
        jobs.c.unique_key.is_not(None).label("holds_key"),
        jobs.c.result,
        jobs.c.last_error,
        jobs.c.errors,
        jobs.c.trace_context,
    ).where(jobs.c.id == cast(bindparam("id", type_=BigInteger), BigInteger))
