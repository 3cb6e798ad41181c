"""The fence: a completion as the last write of the handler's own transaction.

It waits for a row that somebody has locked, where the runner's own verbs pass over it: the transaction that it stands in
can't be sent again. So the token and the lease are looked at after the wait, in the row that was locked then. A plain
WHERE would not do: it is not evaluated again when the one who was waited for has changed nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, Uuid, bindparam, cast, extract, func, select, true, update
from sqlalchemy.dialects.postgresql import INTERVAL

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import interval, number, word
from sa_jobqueue.statements.settle import completed

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Update

_IDLE = "idle_in_transaction_session_timeout"
#: The setting holds no more milliseconds than an integer.
_LONGEST = "24 days"


@cache
def fence() -> Update:
    """To done, as the last write of a transaction. Parameters: `job_id`, `token`, `result_text` (JSON or NULL), `lease`.

    Answers the transaction's number when it has landed, and no row otherwise. The clock is the one that goes on within a
    statement: the wait may outlast the lease. From then on the server ends a client that stays silent for a lease, for it
    would hold the row; who has set less keeps it.
    """
    schema_in_use()
    job = jobs.alias("job")
    mine = (
        select(job.c.id, job.c.lease_until)
        .where(job.c.id == _parameter("job_id", BigInteger), job.c.lease_token == _parameter("token", Uuid))
        .with_for_update(key_share=True)
        .cte("mine")
        .prefix_with("MATERIALIZED")
    )
    return (
        update(jobs)
        .where(jobs.c.id == mine.c.id, mine.c.lease_until > func.clock_timestamp())
        .values(settled_token=jobs.c.lease_token, **completed(_parameter("result_text", Text)))
        .returning(
            cast(cast(func.pg_current_xact_id(), Text), BigInteger).label("xid"),
            func.set_config(word(_IDLE), _longest_silence(), true()).label("silence"),
        )
    )


def _parameter(name: str, kind: Any) -> ColumnElement[Any]:
    return cast(bindparam(name, type_=kind), kind)


def _longest_silence() -> ColumnElement[str]:
    """One lease in milliseconds, or what holds already and is less; 0 is no bound at all."""
    held = func.nullif(cast(func.current_setting(word(_IDLE)), INTERVAL), cast(word("0"), INTERVAL))
    longest = func.least(held, interval("lease"), cast(word(_LONGEST), INTERVAL))
    milliseconds = cast(extract("epoch", longest) * number(1000), BigInteger)
    return cast(func.greatest(milliseconds, number(1)), Text)
