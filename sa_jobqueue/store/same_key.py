"""Several jobs with one key in one call, as if they came one after another: one row is sent for all of them.

Sent one by one, each would be a version of the same row that the next has to walk past.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.records import Inserted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_jobqueue.records import EnqueueOutcome, NewJob, OnConflict

#: What `on_conflict` may ask for that changes a waiting job, and what is told of it.
CHANGES: dict[OnConflict, EnqueueOutcome] = {"replace": "replaced", "reschedule": "rescheduled"}
_STRONGEST: tuple[OnConflict, ...] = ("raise", *CHANGES)


def grouped(new_jobs: Sequence[NewJob]) -> list[list[int]]:
    """The positions of the jobs that share a key, in the order of the keys, and then of each without one."""
    by_key: dict[str, list[int]] = {}
    without: list[list[int]] = []
    for position, new_job in enumerate(new_jobs):
        if (key := new_job.unique_key) is None:
            without.append([position])
        else:
            by_key.setdefault(key, []).append(position)
    return [by_key[key] for key in sorted(by_key)] + without


def folded(same: Sequence[NewJob]) -> NewJob:
    """The one job that leaves the row as these do one after another, whether the first of them finds the key free or not."""
    first, *others = same
    if not others:
        return first
    result = first
    for other in others:
        if other.on_conflict == "replace":
            # As in the row: it becomes what this one asks for, and keeps the key that the first has brought.
            result = replace(
                other,
                idempotency_key=first.idempotency_key,
                key_scope=first.key_scope,
                bucket=first.bucket,
                trace_context=first.trace_context,
            )
        elif other.on_conflict == "reschedule":
            result = replace(result, run_at=other.run_at, delay=other.delay)
    asked = {new_job.on_conflict for new_job in same}
    return replace(result, on_conflict=next((most for most in _STRONGEST if most in asked), "existing"))


def is_changed(same: Sequence[NewJob]) -> bool:
    """Whether one after the first changes what that has inserted."""
    return any(new_job.on_conflict in CHANGES for new_job in same[1:])


def parts(
    same: Sequence[NewJob], answer: Inserted, changed: Mapping[str, Any] | None = None
) -> list[Inserted]:
    """What each of them is told, when this is the answer for the folded one; `changed` is the row that the first created."""
    waited = answer.outcome in ("created", *CHANGES.values())
    told: list[Inserted] = []
    for new_job in same:
        if answer.created and not told:
            told.append(answer)
            continue
        outcome: EnqueueOutcome = "existing"
        if new_job.on_conflict in CHANGES:
            outcome = CHANGES[new_job.on_conflict] if waited else answer.outcome
        told.append(Inserted(answer.id, outcome, changed or answer.values))
    return told


def refused(same: Sequence[NewJob], answer: Inserted) -> list[int]:
    """The places of those that asked to be told of a holder by an error, and have one."""
    return [
        place
        for place, new_job in enumerate(same)
        if new_job.on_conflict == "raise" and (place or not answer.created)
    ]
