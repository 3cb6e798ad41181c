"""What a person does to jobs, on a connection of the caller's: never a commit, never a rollback of it.

Each verb locks its rows in id order, waits for those that another transaction has locked, and answers in the order of
`ids`, which holds each id once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import IntegrityError

from sa_jobqueue.models import jobs
from sa_jobqueue.records import OperatorResult
from sa_jobqueue.statements import cancel as cancel_statement
from sa_jobqueue.statements import redrive as redrive_statement
from sa_jobqueue.statements import reschedule as reschedule_statement
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb
from sa_jobqueue.store.callers_connection import in_autocommit
from sa_jobqueue.store.reconcile import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Executable, Row

#: What the column holds. No job has another id, and no driver could send one.
_FIRST_ID, _LAST_ID = -(2**63), 2**63 - 1
#: A key can change hands between our attempt and the read of its holder; then the attempt is worth repeating.
_ATTEMPTS = 5
_KEY_INDEX = next(str(index.name) for index in jobs.indexes if index.unique)

_REQUESTED = (
    "requested: the runner sees it at its next renewal, and the job is cancelled unless it is done first"
)
_NOT_CANCELLED: Mapping[JobStatus, str] = {
    JobStatus.DONE: "the job is done",
    JobStatus.DEAD: "the job is dead: it won't run again unless it is redriven",
    JobStatus.CANCELLED: "the job is cancelled already",
}
_NOT_RESCHEDULED: Mapping[JobStatus, str] = {
    JobStatus.READY: "the job expires by then: it could never start",
    JobStatus.RUNNING: "the job is running, not ready",
    JobStatus.DONE: "the job is done",
    JobStatus.DEAD: "the job is dead, not ready: redrive it first",
    JobStatus.CANCELLED: "the job is cancelled, not ready: redrive it first",
}


def cancel(connection: Connection, ids: Sequence[int]) -> list[OperatorResult]:
    """Stop jobs that wait, and ask for the end of those that run."""

    def answer(row: Row[Any]) -> OperatorResult:
        status = STATUSES[row.after or row.before]
        if row.after is None:
            return OperatorResult(row.id, landed=False, status=status, reason=_NOT_CANCELLED[status])
        requested = _REQUESTED if status is JobStatus.RUNNING else None
        return OperatorResult(row.id, landed=True, status=status, reason=requested)

    rows = _rows(connection, cancel_statement.cancel(), ids)
    return _in_order(ids, {job_id: answer(row) for job_id, row in rows.items()})


def reschedule(
    connection: Connection,
    ids: Sequence[int],
    *,
    run_at: datetime | None,
    delay: timedelta | None,
    priority: int | None,
) -> list[OperatorResult]:
    """Give jobs that wait another due time, another priority, or both; None leaves what there is."""

    def answer(row: Row[Any]) -> OperatorResult:
        status = STATUSES[row.after or row.before]
        landed = row.after is not None
        reason = None if landed else _NOT_RESCHEDULED[status]
        return OperatorResult(row.id, landed=landed, status=status, reason=reason)

    given = {"run_at": run_at, "delay": delay, "priority": priority}
    rows = _rows(connection, reschedule_statement.reschedule(), ids, **given)
    return _in_order(ids, {job_id: answer(row) for job_id, row in rows.items()})


def redrive(connection: Connection, ids: Sequence[int]) -> list[OperatorResult]:
    """Send dead or cancelled jobs back to ready.

    Those that take their key again go one by one, in the order of the keys, as an enqueue takes them. A job whose key
    another job holds by now stays where it is, and its `reason` names that job; the others go.
    """
    rows = _rows(connection, redrive_statement.redrive(), ids)
    answers = {job_id: _redriven(row) for job_id, row in rows.items()}
    places = {job_id: place for place, job_id in enumerate(ids)}
    left = [
        row for row in rows.values() if row.after is None and row.before in TRANSITIONS[Verb.REDRIVE].sources
    ]
    for row in sorted(left, key=lambda row: (row.idempotency_key, places[row.id])):
        answers[row.id] = _with_key(connection, row)
    return _in_order(ids, answers)


def _redriven(row: Row[Any]) -> OperatorResult:
    status = STATUSES[row.after or row.before]
    if row.after is not None:
        return OperatorResult(row.id, landed=True, status=status)
    reason = f"the job is {status}, neither dead nor cancelled"
    return OperatorResult(row.id, landed=False, status=status, reason=reason)


def _with_key(connection: Connection, row: Row[Any]) -> OperatorResult:
    for _ in range(_ATTEMPTS):
        try:
            return _redrive_alone(connection, row.id)
        except IntegrityError as error:
            if _KEY_INDEX not in str(error.orig):
                raise  # somebody's trigger or constraint, which another attempt would meet again
        held = connection.execute(redrive_statement.key_is_held(), {"held_back": row.id}).one_or_none()
        if held is not None:
            return OperatorResult(row.id, landed=False, status=STATUSES[held.status], reason=held.reason)
    reason = "key held by a job that this transaction can't see"
    return OperatorResult(row.id, landed=False, status=STATUSES[row.before], reason=reason)


def _redrive_alone(connection: Connection, job_id: int) -> OperatorResult:
    if in_autocommit(connection):
        rows = _rows(connection, redrive_statement.redrive_keyed(), [job_id])
    else:
        with connection.begin_nested():
            rows = _rows(connection, redrive_statement.redrive_keyed(), [job_id])
    return _redriven(rows[job_id]) if rows else _missing(job_id)


def _rows(
    connection: Connection, statement: Executable, ids: Sequence[int], **given: Any
) -> dict[int, Row[Any]]:
    known = [job_id for job_id in ids if _FIRST_ID <= job_id <= _LAST_ID]
    if not known:
        return {}
    return {row.id: row for row in connection.execute(statement, {"ids": known, **given})}


def _in_order(ids: Sequence[int], answers: Mapping[int, OperatorResult]) -> list[OperatorResult]:
    return [answers[job_id] if job_id in answers else _missing(job_id) for job_id in ids]


def _missing(job_id: int) -> OperatorResult:
    return OperatorResult(job_id, landed=False, status=None, reason="no such job")
