"""Keeping what we hold: the lease keeper's pure step.

All held leases are renewed in one statement, every third of a lease, on a thread of its own: no handler, however
busy, can keep it from its work. What a renewal finds lost is told to the handler and forgotten. In between it writes the
progress that handlers have reported: the first at once, then at most once a second, for all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.maintenance.duties import OwnRenewal, RenewalFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.records import Renewed


#: So many seconds lie between two writes of progress.
REPORT_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """The keeper's state, in monotonic seconds: when the next renewal is due, and before when none is tried again.

    `report_due` is when the next write of progress is due, None without any, `report_from` the earliest time for it.
    """

    interval: float
    due: float = 0.0
    not_before: float = 0.0
    report_due: float | None = None
    report_from: float = 0.0


@dataclass(frozen=True, slots=True)
class RenewalDone:
    """Event: the answers to the renewal that was sent at `sent_at`; the next one counts from there."""

    answers: Sequence[Renewed]
    sent_at: float


@dataclass(frozen=True, slots=True)
class ProgressMade:
    """Event: a handler has reported progress, the first since all of it was taken to be written."""


@dataclass(frozen=True, slots=True)
class ProgressWritten:
    """Event: progress was written; with `left` some could not be: its row is locked, in a snapshot, or not renewed."""

    left: bool


@dataclass(frozen=True, slots=True)
class RenewNow:
    """Event: somebody waits for a renewal."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Action: renew every lease in the book; `sent_at` is now."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class WriteProgress:
    """Action: write what handlers have reported, and judge what that finds lost."""


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
            case ProgressMade():
                state = _report_at(state, now)
            case ProgressWritten(left):
                state = _report_at(state, now) if left else state
            case Failed(action=WriteProgress(), retry_in=retry_in):
                # No sign of how leases fare: that is a renewal's to tell.
                state = _report_at(replace(state, report_from=max(now + retry_in, state.report_from)), now)
            case Failed(retry_in=retry_in):
                again = now + min(retry_in, state.interval / 4)
                state = replace(state, due=again, not_before=again)
                actions.append(Tell(RenewalFailed()))
    if now >= state.due:
        actions.append(Renew(now))
    elif state.report_due is not None and now >= state.report_due:
        state = replace(state, report_due=None, report_from=now + REPORT_INTERVAL)
        actions.append(WriteProgress())
    else:
        actions.append(WaitUntil(state.due if state.report_due is None else min(state.due, state.report_due)))
    return state, actions


def _report_at(state: Keeping, now: float) -> Keeping:
    """Progress is waiting: due at once, or as soon as it may be."""
    return replace(state, report_due=max(now, state.report_from))
