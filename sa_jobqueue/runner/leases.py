"""Keeping what we hold: the lease keeper's pure step.

All held leases are renewed in one statement, every third of a lease, on a thread of its own: no handler, however
busy, can keep it from its work. What a renewal finds lost is told to the handler and forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.maintenance.duties import OwnRenewal, RenewalFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.records import Renewed


@dataclass(frozen=True, slots=True)
class Keeping:
    """The keeper's state: when the next renewal is due, in monotonic seconds, and before when none is tried again."""

    interval: float
    due: float = 0.0
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class RenewalDone:
    """Event: the answers to the renewal that was sent at `sent_at`; the next one counts from there."""

    answers: Sequence[Renewed]
    sent_at: float


@dataclass(frozen=True, slots=True)
class RenewNow:
    """Event: somebody waits for a renewal."""


@dataclass(frozen=True, slots=True)
class StopKeeping:
    """Event: renew no more."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Action: renew every lease in the book; `sent_at` is now."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Action: hand an event to maintenance, which judges other runners only while our own renewals get through."""

    event: OwnRenewal | RenewalFailed


@dataclass(frozen=True, slots=True)
class Judge:
    """Action: tell handlers whose lease is lost or whose cancellation was asked for, by a renewal sent at `sent_at`."""

    answers: Sequence[Renewed]
    sent_at: float


def step(state: Keeping, events: Sequence[Any], now: float) -> tuple[Keeping, list[Any]]:
    """One turn of the lease keeper."""
    actions: list[Any] = []
    for event in events:
        match event:
            case RenewalDone(answers, sent_at):
                state = replace(state, due=sent_at + state.interval)
                actions += [Tell(OwnRenewal(sent_at)), Judge(answers, sent_at)]
            case RenewNow():
                state = replace(state, due=min(state.due, max(now, state.not_before)))
            case Failed(retry_in=retry_in):
                again = now + min(retry_in, state.interval / 4)
                state = replace(state, due=again, not_before=again)
                actions.append(Tell(RenewalFailed()))
            case StopKeeping():
                return state, [End()]
    actions.append(Renew(now) if now >= state.due else WaitUntil(state.due))
    return state, actions
