"""When a handler has run for too long: the timekeeper's pure step.

A handler's time counts from its start. Past its timeout it is asked to end, and its lease is renewed no more: it would
be renewed for ever. What it says while the rest of the lease lasts still counts, for nobody else can have the job so
far. Then the attempt is settled in its place, as one that timed out, before anybody would take the runner for lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import Failed, WaitUntil

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.records import LeaseKey


@dataclass(frozen=True, slots=True)
class Overdue:
    """A job whose handler has timed out and has until then, in monotonic seconds, to end."""

    key: LeaseKey
    until: float


@dataclass(frozen=True, slots=True)
class Timing:
    """The timekeeper's state, in seconds: the next timeout of what runs now, and what has timed out already.

    `patience` is how long a lease that is renewed no more lasts at least: a lease less one renewal interval.
    """

    patience: float
    due: float | None = None
    overdue: tuple[Overdue, ...] = ()


@dataclass(frozen=True, slots=True)
class Began:
    """Event: a handler has begun that times out then, sooner than any that was running."""

    due: float


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Event: the jobs whose handlers were just found to be past their timeout, and when the next will be."""

    keys: tuple[LeaseKey, ...]
    following: float | None


@dataclass(frozen=True, slots=True)
class TimeOut:
    """Action: ask every handler to end that is past its timeout at this time, and renew its lease no more."""

    at: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Action: settle these jobs, as far as their handlers still run."""

    keys: tuple[LeaseKey, ...]


def step(state: Timing, events: Sequence[Any], now: float) -> tuple[Timing, list[Any]]:
    """One turn of the timekeeper."""
    for event in events:
        match event:
            case Began(due):
                state = replace(state, due=due if state.due is None else min(state.due, due))
            case TimedOut(keys, following):
                overdue = tuple(Overdue(key, now + state.patience) for key in keys)
                state = replace(state, due=following, overdue=(*state.overdue, *overdue))
            case Failed(error=error):
                raise error  # what asks no database has no reason to fail, and is not done again
    actions: list[Any] = []
    if over := tuple(one.key for one in state.overdue if now >= one.until):
        state = replace(state, overdue=tuple(one for one in state.overdue if now < one.until))
        actions.append(GiveUp(over))
    if state.due is not None and now >= state.due:
        return state, [*actions, TimeOut(now)]
    times = [one.until for one in state.overdue]
    if state.due is not None:
        times.append(state.due)
    return state, [*actions, WaitUntil(min(times, default=None))]
