"""What people read: a page of jobs, one job, the numbers of the queues, on a connection of the caller's.

Nothing is locked or written. A page looks at `MOST_WINDOWS` windows of the table, a million jobs, and then says where to
go on; what an index can tell is found wherever it lies: ids, a key that is held, and statuses of few jobs.
"""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sa_jobqueue.queries import listing, stats
from sa_jobqueue.queries.detail import detail
from sa_jobqueue.queries.ending import ending as of_ending
from sa_jobqueue.records import LARGEST_ID, SMALLEST_ID
from sa_jobqueue.states import TERMINAL, JobStatus
from sa_jobqueue.store import bounds
from sa_jobqueue.views import (
    FinishedJob,
    JobDetails,
    JobError,
    JobPage,
    JobProgress,
    JobSummary,
    QueueStats,
    Stats,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Row

    from sa_jobqueue.views import JobFilter

#: One call walks over so many windows of `listing.WINDOW` rows.
MOST_WINDOWS = 500
#: So many jobs of each finished status are counted, unless all are asked for.
COUNTED = 100_000

_SUMMARY = tuple(field.name for field in fields(JobSummary))
_DETAILS = tuple(field.name for field in fields(JobDetails))
_ENDING = tuple(field.name for field in fields(FinishedJob))


def page(connection: Connection, wanted: JobFilter, *, limit: int, before: int | None = None) -> JobPage:
    """The newest jobs that fit, at most `limit`, with ids below `before`."""
    shape = listing.Shape(
        statuses=wanted.statuses,
        kinds=bool(wanted.kinds),
        queues=bool(wanted.queues),
        key=wanted.key is not None,
        due=wanted.due,
    )
    parameters = {
        "before": LARGEST_ID if before is None else max(SMALLEST_ID, min(before, LARGEST_ID)),
        "amount": min(limit, LARGEST_ID),
        "kinds": list(wanted.kinds),
        "queues": list(wanted.queues),
        "key": wanted.key,
    }
    if wanted.ids is not None:
        ids = {"ids": list(dict.fromkeys(filter(_possible, wanted.ids)))}
        return _whole(connection.execute(listing.of_ids(shape), parameters | ids).all(), limit)
    if wanted.everything:
        return _whole(connection.execute(listing.newest(), parameters).all(), limit)
    if wanted.statuses and _few(connection, shape, parameters):
        return _whole(connection.execute(listing.of_statuses(shape), parameters).all(), limit)
    return _walk(connection, shape, parameters, limit)


def details(connection: Connection, job_id: int) -> JobDetails | None:
    """One job whole; None when there is no such job."""
    row = connection.execute(detail(), {"id": job_id}).one_or_none() if _possible(job_id) else None
    if row is None:
        return None
    values = _values(row, _DETAILS)
    values["errors"] = _errors(row.errors)
    return JobDetails(**values)


def ending(connection: Connection, job_id: int) -> FinishedJob | JobStatus | None:
    """How one job ended; its status while it has not, None when there is no such job."""
    row = connection.execute(of_ending(), {"id": job_id}).one_or_none() if _possible(job_id) else None
    if row is None:
        return None
    if row.finished_at is None:
        return JobStatus(row.status)
    values: dict[str, Any] = {name: getattr(row, name) for name in _ENDING}
    values["status"] = JobStatus(row.status)
    return FinishedJob(**values)


def read_stats(connection: Connection, *, most: int | None = COUNTED) -> Stats:
    """The numbers of every queue that has jobs.

    Ready and running jobs are counted exactly, through their indexes; of each finished status at most `most`, so that
    the history of millions costs little. None counts them all.
    """
    now = bounds.now(connection)
    numbers: dict[str, dict[str, Any]] = {}
    for row in connection.execute(stats.ready()):
        queue = numbers.setdefault(row.queue, {})
        queue.update(due=row.due, delayed=row.delayed)
        if row.due:
            queue["oldest_due"] = max(now - row.first_due, now - now)
    for row in connection.execute(stats.running()):
        age = max(now - row.first_due, now - now)
        numbers.setdefault(row.queue, {}).update(running=row.running, expired=row.expired, oldest_running=age)
    sums = dict.fromkeys(TERMINAL, 0)
    for row in connection.execute(stats.finished(), {"most": most}):
        sums[JobStatus(row.status)] += row.number
        numbers.setdefault(row.queue, {})[row.status] = row.number
    return Stats(
        now=now,
        queues=tuple(QueueStats(queue=name, **numbers[name]) for name in sorted(numbers)),
        at_least=frozenset(status for status, number in sums.items() if most is not None and number >= most),
    )


def _possible(job_id: int) -> bool:
    return SMALLEST_ID <= job_id <= LARGEST_ID


def _few(connection: Connection, shape: listing.Shape, parameters: dict[str, Any]) -> bool:
    return bool(connection.execute(listing.population(shape), parameters).scalar_one() <= listing.FEW)


def _walk(connection: Connection, shape: listing.Shape, parameters: dict[str, Any], limit: int) -> JobPage:
    found: list[JobSummary] = []
    windows = 0
    while True:
        rows = connection.execute(listing.window(shape), parameters | {"amount": limit - len(found)}).all()
        found += _summaries(rows)
        if len(found) >= limit:
            return JobPage(tuple(found), rows[0].now, found[-1].id)
        now, edge, windows = rows[0].now, rows[0].edge, windows + 1
        if edge is None or windows >= MOST_WINDOWS:
            break
        parameters = parameters | {"before": edge}
    if shape.key and edge is not None:
        # Older than all that was looked at, but the index knows it; a next page that comes by shows it again.
        held = connection.execute(listing.holder(shape), parameters | {"before": edge, "amount": 1}).all()
        found += _summaries(held)
    return JobPage(tuple(found), now, edge)


def _whole(rows: Sequence[Row[Any]], limit: int) -> JobPage:
    """A page of one statement that looked at everything there is."""
    found = _summaries(rows)
    return JobPage(found, rows[0].now, found[-1].id if found and len(found) >= limit else None)


def _summaries(rows: Sequence[Row[Any]]) -> tuple[JobSummary, ...]:
    return tuple(JobSummary(**_values(row, _SUMMARY)) for row in rows if row.id is not None)


def _values(row: Row[Any], names: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(row, name) for name in names}
    values["status"] = JobStatus(row.status)
    values["progress"] = None if row.progress is None else _progress(row.progress)
    return values


def _errors(stored: Any) -> tuple[JobError, ...]:
    """The errors as the library writes them; what other SQL put there is shown as it is."""
    entries = stored if isinstance(stored, list) else [stored]
    return tuple(map(_error, entries))


def _error(entry: Any) -> JobError:
    if not isinstance(entry, dict) or not isinstance(entry.get("error"), str):
        return JobError(None, None, None, entry if isinstance(entry, str) else json.dumps(entry, default=str))
    attempt, at, verb = (entry.get(name) for name in ("attempt", "at", "verb"))
    return JobError(
        attempt if isinstance(attempt, int) else None,
        at if isinstance(at, str) else None,
        verb if isinstance(verb, str) else None,
        entry["error"],
    )


def _progress(stored: Any) -> JobProgress:
    """A handler's report as the library writes it; what other SQL put there is shown as it is."""
    try:
        fraction, text, attempt, at = (stored[name] for name in ("fraction", "text", "attempt", "at"))
        when = datetime.fromisoformat(at)
        if when.tzinfo is not None and (fraction is None or 0 <= fraction <= 1):
            share = None if fraction is None else float(fraction)
            return JobProgress(share, None if text is None else str(text), int(attempt), when)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    return JobProgress(text=json.dumps(stored, default=str))
