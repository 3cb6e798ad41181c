"""Report: a running job's progress is written down, and nothing else of it.

Apart from the renewal, which writes the lease: no index knows these columns, so that a report every second leaves the
indexes alone, and what the database refuses of a report costs no lease.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Double, Text, func, update
from sqlalchemy.dialects.postgresql import JSONB

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import moment, word
from sa_jobqueue.statements.parts import cut, held, now_in_utc

if TYPE_CHECKING:
    from sqlalchemy import Update


@cache
def report() -> Update:
    """Writes the progress of jobs that still carry their token, their leases past or not.

    Parameters: `ids`, `tokens`, `fractions`, `progress_texts` (cut to MAX_TEXT_BYTES). Answers the batch position and
    whether an operator asked for the cancellation.
    """
    schema_in_use()
    mine = held(fraction=Double, progress_text=Text)
    progress = func.jsonb_build_object(
        *(word("fraction"), mine.c.fraction),
        *(word("text"), cut(mine.c.progress_text)),
        *(word("attempt"), jobs.c.attempts - jobs.c.returned),
        *(word("at"), now_in_utc()),
        type_=JSONB,
    )
    return (
        update(jobs)
        .where(jobs.c.id == mine.c.id)
        .values(progress=progress, updated_at=moment())
        .returning(mine.c.position, jobs.c.cancel_requested_at.is_not(None).label("cancel_requested"))
    )
