"""What becomes of a job whose unique key is taken, by what its `on_conflict` says and what the holder does just then.

holder            ready          running       done, dead, cancelled
"existing"        existing       existing      existing
"replace"         replaced       running       existing
"reschedule"      rescheduled    running       existing
"raise"           DuplicateKeyError, whatever the holder does
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import DuplicateKeyError
from sa_jobqueue.periods import bucket_of
from sa_jobqueue.queries.keys import holders_of_keys, transaction_time
from sa_jobqueue.records import Inserted
from sa_jobqueue.statements.replace import change_parameters, replace_waiting, reschedule_waiting
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from sa_jobqueue.records import EnqueueOutcome, NewJob

#: `on_conflict`, the statement, and what is told of the rows that it changed.
_CHANGES: tuple[tuple[str, Any, EnqueueOutcome], ...] = (
    ("replace", replace_waiting, "replaced"),
    ("reschedule", reschedule_waiting, "rescheduled"),
)
_CHANGING = tuple(on_conflict for on_conflict, _, _ in _CHANGES)


def answer_held(connection: Connection, taken: Mapping[str, NewJob]) -> dict[str, Inserted]:
    """An answer for each of the taken keys, but for those that are free again or change hands just now.

    Raises DuplicateKeyError for a job that asked for it.
    """
    answers: dict[str, Inserted] = {}
    for on_conflict, statement, outcome in _CHANGES:
        changing = [new_job for new_job in taken.values() if new_job.on_conflict == on_conflict]
        if changing:
            for row in connection.execute(statement(), change_parameters(changing)).mappings():
                answers[row["unique_key"]] = Inserted(row["id"], outcome, dict(row))
    if left := [key for key in taken if key not in answers]:
        for row in connection.execute(holders_of_keys(), {"keys": left}).mappings():
            answers.update(_answer(taken[row["unique_key"]], dict(row)))
    return answers


def _answer(new_job: NewJob, holder: Mapping[str, Any]) -> Iterator[tuple[str, Inserted]]:
    status = holder["status"]
    if new_job.on_conflict == "raise":
        raise DuplicateKeyError(
            f"the idempotency key {new_job.idempotency_key!r} is held by job {holder['id']} ({holder['kind']}), which is "
            f"{status}; nothing was inserted, and the transaction can go on",
            idempotency_key=new_job.idempotency_key or "",
            job_id=holder["id"],
            status=status,
        )
    changing = new_job.on_conflict in _CHANGING
    if changing and status == JobStatus.READY:
        return  # it was not a moment ago: what it asks for is tried again
    outcome: EnqueueOutcome = "running" if changing and status == JobStatus.RUNNING else "existing"
    yield holder["unique_key"], Inserted(holder["id"], outcome, holder)


def with_buckets(connection: Connection, new_jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The same with a bucket for each that leaves its choice to the database: that of the transaction's start."""
    if all(new_job.period is None for new_job in new_jobs):
        return new_jobs
    now = connection.execute(transaction_time()).scalar_one()
    return [
        new_job
        if new_job.period is None
        else replace(new_job, bucket=bucket_of(now, new_job.period), period=None)
        for new_job in new_jobs
    ]
