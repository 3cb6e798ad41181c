"""The columns that people are shown, in a form that every driver and terminal can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import case, func, null

from sa_jobqueue.sql import number, readable

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, FromClause

#: The beginning of an error that a list shows.
_HEADLINE = 300
_LINE_FEED = 10
#: What the library writes down of progress takes less, in every encoding.
_LONGEST_PROGRESS = 32 * 1024
_PLAIN = (
    *("id", "kind", "queue", "status", "priority", "attempts", "returned", "max_attempts", "leased_by"),
    *("idempotency_key", "reason"),
)
_TIMES = ("run_at", "created_at", "updated_at")
_OPTIONAL_TIMES = ("lease_until", "cancel_requested_at", "finished_at")


def summary(job: FromClause) -> list[ColumnElement[Any]]:
    """What `JobSummary` holds, under the names of its fields."""
    # Cut first: splitting an error of megabytes, written by somebody else's SQL, would take its time for every row.
    start = func.left(job.c.last_error, number(_HEADLINE))
    headline = func.split_part(start, func.chr(number(_LINE_FEED)), number(1))
    return [
        *(job.c[name] for name in _PLAIN),
        *(readable(job.c[name]).label(name) for name in _TIMES),
        *(readable_or_null(job.c[name]).label(name) for name in _OPTIONAL_TIMES),
        headline.label("error"),
        case((func.pg_column_size(job.c.progress) <= number(_LONGEST_PROGRESS), job.c.progress)).label(
            "progress"
        ),
    ]


def readable_or_null(time: ColumnElement[Any]) -> ColumnElement[Any]:
    """As `readable`, for a column that may be NULL: greatest() and least() pass over NULL."""
    return case((time.is_(None), null()), else_=readable(time))
