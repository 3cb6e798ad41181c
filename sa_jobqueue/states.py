"""The life of a job: statuses, and the one table of verbs that may change them.

CHECK constraints, what may be redriven and the diagram in the documentation are made from these words; the guards that
`TRANSITIONS` names are written in `statements`, and a test holds the two together. Nothing here knows SQL.
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
    REPLACE = "replace"
    RESCHEDULE = "reschedule"
    PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Transition:
    """One verb: the moves it may make, as pairs of the status it leaves and the one it reaches, and its guard.

    None stands for no row: before an enqueue, after a prune.
    """

    moves: tuple[tuple[JobStatus | None, JobStatus | None], ...]
    guard: Guard

    @property
    def sources(self) -> tuple[JobStatus, ...]:
        """The statuses that the verb leaves, each once."""
        return tuple(dict.fromkeys(source for source, _ in self.moves if source is not None))

    @property
    def targets(self) -> tuple[JobStatus, ...]:
        """The statuses that the verb may reach, each once."""
        return tuple(dict.fromkeys(target for _, target in self.moves if target is not None))


def _moves(
    sources: tuple[JobStatus | None, ...], targets: tuple[JobStatus | None, ...]
) -> tuple[tuple[JobStatus | None, JobStatus | None], ...]:
    return tuple((source, target) for source in sources for target in targets)


_READY, _RUNNING, _DONE, _DEAD, _CANCELLED = JobStatus

TRANSITIONS: Mapping[Verb, Transition] = MappingProxyType(
    {
        Verb.ENQUEUE: Transition(_moves((None,), (_READY,)), Guard.UNIQUE_KEY),
        Verb.CLAIM: Transition(_moves((_READY,), (_RUNNING,)), Guard.DUE),
        Verb.RENEW: Transition(_moves((_RUNNING,), (_RUNNING,)), Guard.TOKEN),
        Verb.COMPLETE: Transition(_moves((_RUNNING,), (_DONE,)), Guard.TOKEN_AND_LEASE),
        Verb.RETRY: Transition(_moves((_RUNNING,), (_READY, _DEAD, _CANCELLED)), Guard.TOKEN),
        Verb.SNOOZE: Transition(_moves((_RUNNING,), (_READY, _CANCELLED)), Guard.TOKEN),
        Verb.DISCARD: Transition(_moves((_RUNNING,), (_DEAD, _CANCELLED)), Guard.TOKEN),
        Verb.RELEASE: Transition(_moves((_RUNNING,), (_READY, _CANCELLED)), Guard.TOKEN),
        Verb.ABORT: Transition(_moves((_RUNNING,), (_CANCELLED,)), Guard.TOKEN),
        Verb.RESCUE: Transition(_moves((_RUNNING,), (_READY, _DEAD, _CANCELLED)), Guard.EXPIRED_LEASE),
        Verb.CANCEL: Transition(((_READY, _CANCELLED), (_RUNNING, _RUNNING)), Guard.ID),
        Verb.REDRIVE: Transition(_moves((_DEAD, _CANCELLED), (_READY,)), Guard.ID),
        Verb.REPLACE: Transition(_moves((_READY,), (_READY,)), Guard.UNIQUE_KEY),
        Verb.RESCHEDULE: Transition(_moves((_READY,), (_READY,)), Guard.ID),
        Verb.PRUNE: Transition(_moves((_DONE, _DEAD, _CANCELLED), (None,)), Guard.AGE),
    }
)

#: Statuses that nothing but a person (redrive) or age (prune) leads out of.
TERMINAL: tuple[JobStatus, ...] = tuple(
    status for status in JobStatus if status in TRANSITIONS[Verb.PRUNE].sources
)

#: Why a job is dead or cancelled, in the queue's own words; a handler's discard and a key that is held have theirs.
EXHAUSTED_REASON, EXPIRED_REASON, CANCELLED_REASON = "exhausted", "expired", "cancelled"


def diagram() -> str:
    """The transitions as Mermaid source, for the documentation."""
    lines = ["stateDiagram-v2"]
    for verb, transition in TRANSITIONS.items():
        lines += [
            f"    {source or '[*]'} --> {target or '[*]'}: {verb}" for source, target in transition.moves
        ]
    return "\n".join(lines)
