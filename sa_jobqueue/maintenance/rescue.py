"""Taking back the jobs of lost runners: the rescuer's pure step.

Rescue is gentle: the first pass after every (re)connection waits one renewal interval and for this runner's own
renewal, so that after an outage living runners renew before anybody judges them; and only leases that have been past
for one renewal interval count. Rescued jobs come back with their handler's backoff.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import End, Failed, WaitUntil, backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Rescued in one statement: small, so that no lock is held long.
BATCH_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Rescuing:
    """The rescuer's state. `renewed` says that this runner has renewed since it last (re)connected."""

    interval: float
    patience: float
    due: float | None = None
    renewed: bool = False
    failures: int = 0


@dataclass(frozen=True, slots=True)
class OwnRenewal:
    """Event: this runner's lease keeper has renewed."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Event: one pass is over; it found so many expired leases."""

    found: int


@dataclass(frozen=True, slots=True)
class StopRescuing:
    """Event: rescue no more."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Action: rescue one batch of expired leases."""

    limit: int = BATCH_LIMIT


def step(state: Rescuing, events: Sequence[Any], now: float) -> tuple[Rescuing, list[Any]]:
    """One turn of the rescuer."""
    if state.due is None:
        state = replace(state, due=now + state.patience)
    for event in events:
        match event:
            case OwnRenewal():
                state = replace(state, renewed=True)
            case Swept(found):
                # A full batch means that there is more: go on at once, in another short transaction.
                pause = 0.0 if found >= BATCH_LIMIT else state.interval
                state = replace(state, due=now + pause, failures=0)
            case Failed(jitter=jitter):
                failures = state.failures + 1
                wait = max(state.patience, backoff(failures, jitter))
                state = replace(state, due=now + wait, renewed=False, failures=failures)
            case StopRescuing():
                return state, [End()]
    if not state.renewed:
        return state, [WaitUntil(None)]
    return state, [Sweep() if state.due is not None and now >= state.due else WaitUntil(state.due)]
