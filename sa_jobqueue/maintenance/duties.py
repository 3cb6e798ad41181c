"""When which duty is due: the maintenance loop's pure step.

A duty is a small, repeatable act in short transactions of its own. Gentle duties judge other runners: after every
(re)connection they wait one renewal interval *and* a renewal of this runner's own, so that after an outage the living
renew before anybody takes their jobs. An outage ends with a connection, not with the end of a pause: that is why to
connect is an action of its own. And one may come while a gentle duty waits: then the keeper tells of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Duty:
    """One recurring act, every `interval` seconds, for the first time as soon as it may."""

    name: str
    interval: float
    gentle: bool = False
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class Maintaining:
    """The maintenance loop's state, in seconds. `patience` is one renewal interval.

    `well_since` is when the last trouble ended that we know of, None while there is no connection; `renewed_at` is
    when our last renewal that got through was sent.
    """

    duties: tuple[Duty, ...]
    patience: float
    well_since: float | None = None
    connect_at: float = 0.0
    renewed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class OwnRenewal:
    """Event: this runner's lease keeper has renewed, with a statement sent at that time."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class RenewalFailed:
    """Event: a renewal of this runner's own did not get through, and so may others' not have."""


@dataclass(frozen=True, slots=True)
class Connected:
    """Event: the database answers."""


@dataclass(frozen=True, slots=True)
class Done:
    """Event: a duty is done; `more` says that its batch was full and it should go on at once."""

    name: str
    more: bool


@dataclass(frozen=True, slots=True)
class Connect:
    """Action: see to it that the database answers. Duties may wait long after it, but the outage is over."""

    recovers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Do:
    """Action: do this duty once."""

    name: str


def step(state: Maintaining, events: Sequence[Any], now: float) -> tuple[Maintaining, list[Any]]:
    """One turn of the maintenance loop."""
    for event in events:
        match event:
            case OwnRenewal(sent_at):
                state = replace(state, renewed_at=sent_at)
            case RenewalFailed() if state.well_since is not None:
                state = replace(state, well_since=now)
            case Connected():
                state = replace(state, well_since=now)
            case Done(name, more):
                state = _put_off(state, name, now, 0 if more else None)
            case Failed(action=Do(name), error=error, retry_in=retry_in):
                state = _after_failure(state, name, error, now, retry_in)
            case Failed(retry_in=retry_in):
                state = replace(state, well_since=None, connect_at=now + retry_in)
    if state.well_since is None:
        return state, [Connect() if now >= state.connect_at else WaitUntil(state.connect_at)]
    well = state.well_since
    times = [(at, duty) for duty in state.duties if (at := _may_begin(state, well, duty)) is not None]
    if not times:
        return state, [WaitUntil(None)]
    at, first = min(times, key=lambda pair: pair[0])
    return state, [Do(first.name) if now >= at else WaitUntil(at)]


def _may_begin(state: Maintaining, well_since: float, duty: Duty) -> float | None:
    """When it is due and may begin; None while that depends on a renewal."""
    if not duty.gentle:
        return duty.due
    return None if state.renewed_at < well_since else max(duty.due, well_since + state.patience)


def _after_failure(
    state: Maintaining, name: str, error: Exception, now: float, retry_in: float
) -> Maintaining:
    """One that the server refused waits alone: it must not keep the others from their work for ever.

    When it is a gentle one, what stopped it may have stopped others' renewals too: its patience begins anew.
    """
    state = _put_off(state, name, now, retry_in)
    if not refused(error):
        return replace(state, well_since=None, connect_at=now + retry_in)
    gentle = any(duty.gentle for duty in state.duties if duty.name == name)
    return replace(state, well_since=now) if gentle else state


def _put_off(state: Maintaining, name: str, now: float, seconds: float | None) -> Maintaining:
    """The duty of this name is due in so many seconds, None in its interval."""
    return replace(
        state,
        duties=tuple(
            replace(duty, due=now + (duty.interval if seconds is None else seconds))
            if duty.name == name
            else duty
            for duty in state.duties
        ),
    )
