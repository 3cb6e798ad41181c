"""What the dispatcher is told, and what it has done: the events and actions of `dispatch.step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sa_jobqueue.runner.low_water import Sight

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sa_jobqueue.records import ClaimedJob, Marks

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Freed:
    """Event: so many handlers of each queue have finished, and so many jobs left before they began.

    `running` outcomes more were decided in place of handlers that still run, and keep their slots.
    """

    finished: Mapping[str, int]
    unstarted: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    running: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """Event: what a claim brought, against what was asked; `unsettled` jobs were held when it was sent.

    `behind` are the marks at which it began, `sight` is what it saw, `sizes` how large the payloads of each queue are in
    all, in characters.
    """

    asked: Mapping[str, int]
    got: Mapping[str, int]
    unsettled: int
    jitter: float
    behind: Mapping[str, Marks] = field(default_factory=lambda: _NOTHING)
    sight: Sight = field(default_factory=Sight)
    sizes: Mapping[str, int] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Counted:
    """Event: so many jobs are held."""

    unsettled: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Event: these jobs are back in their queues, at their old places."""

    jobs: Sequence[ClaimedJob]


@dataclass(frozen=True, slots=True)
class Released:
    """Event: the release of a lost claim has been answered."""

    token: UUID


@dataclass(frozen=True, slots=True)
class Written:
    """Event: so many outcomes are decided, after their handlers were told as freed."""

    count: int


@dataclass(frozen=True, slots=True)
class OutcomesBlocked:
    """Event: outcomes can't be written (True), or can again (False). Until then nothing new is claimed."""

    blocked: bool


@dataclass(frozen=True, slots=True)
class Ears:
    """Event: from now on what is notified is heard, or is not."""

    open: bool


@dataclass(frozen=True, slots=True)
class Woken:
    """Event: something was committed, or may have been; `jitter` is a random number below 1."""

    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class DueIn:
    """Event: a job of these queues becomes due in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Announced:
    """Event: the flag is set since `sent_at` at the latest; so many `others` wait.

    The next job is due in `next_due` seconds.
    """

    others: int
    next_due: float | None
    sent_at: float
    jitter: float


@dataclass(frozen=True, slots=True)
class Silenced:
    """Event: the flag is taken back; `refused` when the database does not let us set it."""

    refused: bool = False


@dataclass(frozen=True, slots=True)
class StopClaiming:
    """Event: claim no more, give back what never began; releases of lost claims are tried until this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Claim:
    """Action: claim up to so many of each queue under this token; of some queues only what comes after their marks."""

    token: UUID
    quotas: Mapping[str, int]
    behind: Mapping[str, Marks] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Announce:
    """Action: set the flag that says that this runner waits for jobs, for so many seconds; None takes it back."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Count:
    """Action: count the jobs that are held."""


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Action: give back whatever the claim with this token took."""

    token: UUID


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Action: release the claimed jobs of these queues that no handler has begun."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drained:
    """Action: a burst has nothing left to do, or can do nothing: then `fault` says why."""

    fault: Exception | None = None
