"""What becomes of a job whose unique key is taken, by what its `on_conflict` says and what the holder does just then.

holder            ready          running       done, dead, cancelled
"existing"        existing       existing      existing
"replace"         replaced       running       existing
"reschedule"      rescheduled    running       existing
"raise"           DuplicateKeyError, whatever the holder does
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_jobqueue.batch import kinds_of
from sa_jobqueue.errors import DuplicateKeyError
from sa_jobqueue.periods import bucket_of
from sa_jobqueue.queries.keys import holders_of_keys, transaction_time
from sa_jobqueue.records import Inserted
from sa_jobqueue.statements.replace import change_parameters, change_waiting
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.same_key import CHANGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from sa_jobqueue.records import EnqueueOutcome, NewJob


def answer_held(connection: Connection, taken: Mapping[str, NewJob]) -> dict[str, Inserted]:
    """An answer for each of the taken keys, but for those that are free again or change hands just now.

    A holder that somebody wants to be told of by an error is "existing" here.
    """
    answers: dict[str, Inserted] = {}
    if changing := [new_job for new_job in taken.values() if new_job.on_conflict in CHANGES]:
        for row in connection.execute(change_waiting(), change_parameters(changing)).mappings():
            key = row["unique_key"]
            answers[key] = Inserted(row["id"], CHANGES[taken[key].on_conflict], dict(row))
    if left := [key for key in taken if key not in answers]:
        for key, holder in holders(connection, left).items():
            if (outcome := _outcome(taken[key], holder["status"])) is not None:
                answers[key] = Inserted(holder["id"], outcome, holder)
    return answers


def holders(connection: Connection, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The rows that hold these unique keys, all but their large columns, by key."""
    rows = connection.execute(holders_of_keys(), {"keys": keys}).mappings()
    return {row["unique_key"]: dict(row) for row in rows}


def refusal(new_job: NewJob, holder: Inserted, indexes: Sequence[int]) -> DuplicateKeyError:
    """The error for those that asked for it, by their indexes in the call."""
    by_another = f"is held by job {holder.id} ({holder.values.get('kind')}), which is {holder.told.status}"
    by = "is that of another job of the same call" if holder.created else by_another
    return DuplicateKeyError(
        f"the idempotency key {new_job.idempotency_key!r} {by}; nothing was inserted, and the transaction can go on",
        idempotency_key=new_job.idempotency_key or "",
        job_id=None if holder.created else holder.id,
        status=None if holder.created else holder.told.status,
        indexes=tuple(indexes),
    )


def _outcome(new_job: NewJob, status: str) -> EnqueueOutcome | None:
    """What is told of a holder that was not changed; None where it was not ready a moment ago, and is tried again."""
    if new_job.on_conflict not in CHANGES:
        return "existing"
    if status == JobStatus.READY:
        return None
    return "running" if status == JobStatus.RUNNING else "existing"


def with_buckets(connection: Connection, new_jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The same with a bucket for each that leaves its choice to the database: that of the transaction's start."""
    if all(kind.period is None for kind in kinds_of(new_jobs)):
        return new_jobs
    now = connection.execute(transaction_time()).scalar_one()
    return [
        new_job
        if new_job.period is None
        else new_job._replace(bucket=bucket_of(now, new_job.period), period=None)
        for new_job in new_jobs
    ]
