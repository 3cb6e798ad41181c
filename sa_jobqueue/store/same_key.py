"""Several jobs with one key in one call, as if they came one after another: one row is sent for all of them.

Sent one by one, each would be a version of the same row that the next has to walk past.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sa_jobqueue.batch import kinds_of
from sa_jobqueue.records import Inserted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_jobqueue.records import EnqueueOutcome, NewJob, OnConflict

#: What `on_conflict` may ask for that changes a waiting job, and what is told of it.
CHANGES: dict[OnConflict, EnqueueOutcome] = {"replace": "replaced", "reschedule": "rescheduled"}
_STRONGEST: tuple[OnConflict, ...] = ("raise", *CHANGES)


class Sending(NamedTuple):
    """What is sent for the jobs of one call: those with a key in the order of the keys, then those without.

    `positions` has the place in the call of each that is sent; where several share a key it is the first of them, and
    `same` has the places of all, by the place of the one that is sent.
    """

    sent: Sequence[NewJob]
    positions: Sequence[int]
    same: Mapping[int, list[int]]
    keyed: int


def arranged(new_jobs: Sequence[NewJob]) -> Sending:
    """These jobs as they are sent."""
    if all(kind.idempotency_key is None for kind in kinds_of(new_jobs)):
        return Sending(new_jobs, range(len(new_jobs)), {}, 0)
    by_key: dict[str, list[int]] = {}
    without: list[int] = []
    for position, new_job in enumerate(new_jobs):
        if (key := new_job.unique_key) is None:
            without.append(position)
        else:
            by_key.setdefault(key, []).append(position)
    groups = [by_key[key] for key in sorted(by_key)]
    same = {at: group for at, group in enumerate(groups) if len(group) > 1}
    positions = [*(group[0] for group in groups), *without]
    sent = [new_jobs[position] for position in positions]
    for at, group in same.items():
        sent[at] = folded([new_jobs[position] for position in group])
    return Sending(sent, positions, same, len(groups))


def folded(same: Sequence[NewJob]) -> NewJob:
    """The one job that leaves the row as these do one after another, whether the first of them finds the key free or not."""
    first, *others = same
    result = first
    for other in others:
        if other.on_conflict == "replace":
            # As in the row: it becomes what this one asks for, and keeps the key that the first has brought.
            result = other._replace(
                idempotency_key=first.idempotency_key,
                key_scope=first.key_scope,
                bucket=first.bucket,
                trace_context=first.trace_context,
            )
        elif other.on_conflict == "reschedule":
            result = result._replace(run_at=other.run_at, delay=other.delay)
    asked = {new_job.on_conflict for new_job in same}
    return result._replace(on_conflict=next((most for most in _STRONGEST if most in asked), "existing"))


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
