"""When which duty is due: the maintenance loop's pure step.

A duty is a small, repeatable act in short transactions of its own. Gentle duties judge other runners: after every
(re)connection they wait one renewal interval *and* this runner's own renewal, so that after an outage the living renew
before anybody takes their jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import End, Failed, WaitUntil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Duty:
    """One recurring act, every `interval` seconds; `due` None is set at the first step."""

    name: str
    interval: float
    gentle: bool = False
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Maintaining:
    """The maintenance loop's state. `patience` is one renewal interval, in seconds."""

    duties: tuple[Duty, ...]
    patience: float
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class OwnRenewal:
    """Event: this runner's lease keeper has renewed."""


@dataclass(frozen=True, slots=True)
class Done:
    """Event: a duty is done; `more` says that its batch was full and it should go on at once."""

    name: str
    more: bool


@dataclass(frozen=True, slots=True)
class StopMaintaining:
    """Event: begin nothing more."""


@dataclass(frozen=True, slots=True)
class Do:
    """Action: do this duty once."""

    name: str


def step(state: Maintaining, events: Sequence[Any], now: float) -> tuple[Maintaining, list[Any]]:
    """One turn of the maintenance loop."""
    state = _each(
        state,
        lambda duty: (
            duty if duty.due is not None else _later(duty, now, state.patience if duty.gentle else 0)
        ),
    )
    for event in events:
        match event:
            case OwnRenewal():
                state = replace(state, renewed=True)
            case Done(name, more):
                state = _each(
                    state,
                    lambda duty: (
                        _later(duty, now, 0 if more else duty.interval) if duty.name == name else duty
                    ),
                )
            case Failed(action=Do(name), retry_in=retry_in):
                state = _after_failure(state, name, now, retry_in)
            case StopMaintaining():
                return state, [End()]
    able = [duty for duty in state.duties if state.renewed or not duty.gentle]
    if not able:
        return state, [WaitUntil(None)]
    first = min(able, key=lambda duty: duty.due or 0.0)
    return state, [Do(first.name) if now >= (first.due or 0.0) else WaitUntil(first.due)]


def _after_failure(state: Maintaining, name: str, now: float, retry_in: float) -> Maintaining:
    """The connection is gone: gentle duties get the patience of a fresh start, the failed one its pause."""
    patience = max(retry_in, state.patience)

    def later(duty: Duty) -> Duty:
        if duty.gentle:
            return _later(duty, now, patience)
        return _later(duty, now, retry_in) if duty.name == name else duty

    return _each(replace(state, renewed=False), later)


def _later(duty: Duty, now: float, seconds: float) -> Duty:
    return replace(duty, due=now + seconds)


def _each(state: Maintaining, change: Callable[[Duty], Duty]) -> Maintaining:
    return replace(state, duties=tuple(change(duty) for duty in state.duties))
