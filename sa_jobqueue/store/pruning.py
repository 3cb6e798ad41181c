"""Finished jobs that have been kept long enough are deleted, one batch at a time; a row that must stay stops no other.

For runners on a connection of their own, and for a person in a transaction of the caller's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.durations import check_delay
from sa_jobqueue.queries import prunable
from sa_jobqueue.records import Pruned, PrunePosition
from sa_jobqueue.statements.prune import prune as prune_statement
from sa_jobqueue.statements.prune import prune_listed
from sa_jobqueue.states import TERMINAL, JobStatus
from sa_jobqueue.store.callers_connection import CallersConnection
from sa_jobqueue.store.pieces import write_in_pieces
from sa_jobqueue.store.trouble import because_of_a_row, fault_of, passes_by_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Executable

    #: Sends one statement that stands or falls by itself, and gives its rows.
    Rows = Callable[[Executable, Mapping[str, Any]], Sequence[Any]]

#: What one statement may delete at most.
LARGEST_BATCH = 10_000
#: How long a runner's batch waits for a lock on what hangs on a job by a foreign key.
PATIENCE = timedelta(milliseconds=500)
#: After so many pieces of a batch that met a lock or another trouble that passes, the rest is left for another time.
MOST_WAITS = 5
_LOWEST_ID = -(2**63)


def prune(
    connection: Connection,
    *,
    status: JobStatus,
    older_than: timedelta,
    limit: int = 500,
    position: PrunePosition | None = None,
) -> Pruned:
    """Delete one batch of jobs of one terminal status that finished longer than `older_than` ago, the oldest first.

    In the caller's transaction: commit after each batch, and give the answer's `position` to the next one while there
    is `more`. Rows that somebody has locked are skipped. Jobs that the database refuses to delete (an application's foreign
    key, a trigger) are counted and stop nobody; savepoints keep them from spoiling the transaction.
    Raises ValueError for a status that is not terminal, a negative duration, a limit outside 1 to 10,000.
    """
    _check(status, older_than)
    if type(limit) is not int or not 1 <= limit <= LARGEST_BATCH:
        raise ValueError(f"limit={limit!r}: must be a whole number from 1 to {LARGEST_BATCH}")

    rows = CallersConnection(connection).rows
    return prune_batch(rows, status=status, age=older_than, limit=limit, position=position)


def count_prunable(connection: Connection, *, status: JobStatus, older_than: timedelta) -> int:
    """How many jobs of this status finished longer than `older_than` ago. Raises ValueError as `prune` does."""
    _check(status, older_than)
    count: int = connection.execute(prunable.count(status), {"age": older_than}).scalar_one()
    return count


def prune_batch(
    rows: Rows,
    *,
    status: JobStatus,
    age: timedelta,
    limit: int,
    position: PrunePosition | None = None,
    patience: timedelta | None = None,
) -> Pruned:
    """One batch from `position` on. `patience` bounds each wait for a lock on what hangs on a job by a foreign key.

    One statement as a rule. Once a row was refused, and for the rest of the way behind it, a page is read and deleted by
    id, in pieces. Errors that no row is to blame for pass through.
    """
    given = {"age": age, "patience": None if patience is None else f"{patience.total_seconds() * 1000:.0f}ms"}
    since = None if position is None else position.finished_at
    behind = None if position is None else position.id
    if behind is None:
        try:
            deleted = rows(prune_statement(status), {**given, "since": since, "amount": limit})
        except Exception as error:
            if not because_of_a_row(error):
                raise
        else:
            newest = max((row.finished_at for row in deleted), default=since)
            return Pruned(
                len(deleted),
                more=len(deleted) >= limit,
                position=None if newest is None else PrunePosition(newest),
            )
    parameters = {
        "age": age,
        "since": since,
        "behind": _LOWEST_ID if behind is None else behind,
        "amount": limit,
    }
    page = rows(prunable.page(status), parameters)
    if not page:
        return Pruned(0, position=position)
    last = PrunePosition(page[-1].finished_at, page[-1].id)
    count, refused = _delete_listed(rows, status, given, [row.id for row in page])
    fault = fault_of(refused[0]) if refused else None
    return Pruned(count, len(refused), fault, more=len(page) >= limit, position=last)


def _delete_listed(
    rows: Rows, status: JobStatus, given: Mapping[str, Any], ids: Sequence[int]
) -> tuple[int, list[Exception]]:
    """How many were deleted, and the error of each that is refused for good; what is only in use is neither."""
    waits = 0

    def write(piece: Sequence[int]) -> Iterable[tuple[int, None]]:
        nonlocal waits
        if waits >= MOST_WAITS:
            return ()
        try:
            deleted = rows(prune_listed(status), {**given, "ids": piece})
        except Exception as error:
            waits += passes_by_itself(error)
            raise
        places = {job_id: place for place, job_id in enumerate(piece, 1)}
        return [(places[row.id], None) for row in deleted]

    try:
        written = write_in_pieces(write, ids)
    except Exception as error:
        if not because_of_a_row(error):
            raise
        # Some of them, wherever they stood, were refused alone, and none of those was not: taken for all.
        return 0, [error] * len(ids)
    return len(written.landed), [error for error in written.refused.values() if not passes_by_itself(error)]


def _check(status: JobStatus, older_than: timedelta) -> None:
    if status not in TERMINAL:
        raise ValueError(f"status={status!r}: only finished jobs are pruned, so one of {', '.join(TERMINAL)}")
    check_delay("older_than", older_than)
