"""The life of a job: statuses, and the one table of verbs that may change them.

Guards, CHECK constraints and the diagram in the documentation are made from `TRANSITIONS`. Nothing here knows
SQL or Python objects beyond these words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobStatus(StrEnum):
    """Where a job is. `done` has no way out; a person may redrive `dead` and `cancelled`."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Guard(StrEnum):
    """What a write must prove before it may land."""

    UNIQUE_KEY = "unique_key"
    DUE = "due"
    TOKEN = "token"  # noqa: S105 - a word of the protocol, no password
    TOKEN_AND_LEASE = "token and unexpired lease"  # noqa: S105
    EXPIRED_LEASE = "expired lease"
    ID = "id"
    AGE = "age"


class Verb(StrEnum):
    """Everything that can happen to a job."""

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    RENEW = "renew"
    COMPLETE = "complete"
    RETRY = "retry"
    SNOOZE = "snooze"
    DISCARD = "discard"
    RELEASE = "release"
    ABORT = "abort"
    RESCUE = "rescue"
    CANCEL = "cancel"
    REDRIVE = "redrive"
    RESCHEDULE = "reschedule"
    PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Transition:
    """One verb: the statuses it leaves, those it may reach, and its guard."""

    sources: tuple[JobStatus, ...]
    targets: tuple[JobStatus, ...]
    guard: Guard


_READY, _RUNNING, _DONE, _DEAD, _CANCELLED = JobStatus

TRANSITIONS: Mapping[Verb, Transition] = MappingProxyType(
    {
        Verb.ENQUEUE: Transition((), (_READY,), Guard.UNIQUE_KEY),
        Verb.CLAIM: Transition((_READY,), (_RUNNING,), Guard.DUE),
        Verb.RENEW: Transition((_RUNNING,), (_RUNNING,), Guard.TOKEN),
        Verb.COMPLETE: Transition((_RUNNING,), (_DONE,), Guard.TOKEN_AND_LEASE),
        Verb.RETRY: Transition((_RUNNING,), (_READY, _DEAD, _CANCELLED), Guard.TOKEN),
        Verb.SNOOZE: Transition((_RUNNING,), (_READY, _CANCELLED), Guard.TOKEN),
        Verb.DISCARD: Transition((_RUNNING,), (_DEAD, _CANCELLED), Guard.TOKEN),
        Verb.RELEASE: Transition((_RUNNING,), (_READY, _CANCELLED), Guard.TOKEN),
        Verb.ABORT: Transition((_RUNNING,), (_CANCELLED,), Guard.TOKEN),
        Verb.RESCUE: Transition((_RUNNING,), (_READY, _DEAD, _CANCELLED), Guard.EXPIRED_LEASE),
        Verb.CANCEL: Transition((_READY, _RUNNING), (_CANCELLED, _RUNNING), Guard.ID),
        Verb.REDRIVE: Transition((_DEAD, _CANCELLED), (_READY,), Guard.ID),
        Verb.RESCHEDULE: Transition((_READY,), (_READY,), Guard.ID),
        Verb.PRUNE: Transition((_DONE, _DEAD, _CANCELLED), (), Guard.AGE),
    }
)

#: Statuses that nothing but a person (redrive) or age (prune) leads out of.
TERMINAL: tuple[JobStatus, ...] = tuple(
    status for status in JobStatus if status in TRANSITIONS[Verb.PRUNE].sources
)


def diagram() -> str:
    """The transitions as Mermaid source, for the documentation."""
    lines = ["stateDiagram-v2"]
    for verb, transition in TRANSITIONS.items():
        for source in transition.sources or ("[*]",):
            lines += [f"    {source} --> {target}: {verb}" for target in transition.targets or ("[*]",)]
    return "\n".join(lines)
