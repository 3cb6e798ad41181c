"""When to listen, and what follows from what is heard: the listener's pure step.

A notification is a hint: whatever becomes of it, the dispatcher looks at the table now and then. Nothing here knows
sockets, channels or poolers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sa_jobqueue.loop import Failed, WaitUntil
from sa_jobqueue.runner.dispatch_messages import Ears, Woken

#: A connection on which nothing was heard for so many seconds is asked whether it lives. A proxy may keep one open
#: with nobody behind it.
CHECK_INTERVAL = 30.0
#: What is not heard although no pooler is in between may be heard after so many seconds: a failover is under way, or the
#: server was busy.
UNHEARD_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Listening:
    """The listener's state: `check_at` while it listens, else None and `retry_at`, which is None when it gave up."""

    check_at: float | None = None
    retry_at: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Listened:
    """Event: connected, and `heard` says whether what is notified gets here. `jitter` is a random number below 1.

    `for_good`: nothing will be heard there at another time either.
    """

    heard: bool
    jitter: float
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """Event: waiting is over, with a notification or without one."""

    notified: bool
    jitter: float


@dataclass(frozen=True, slots=True)
class Checked:
    """Event: the server has answered."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Action: connect, see whether anything can be heard, and listen."""

    #: Whatever has failed before failed with the last connection.
    recovers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Hear:
    """Action: wait for a notification up to this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Check:
    """Action: ask the server for an answer."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Action: hand an event to the dispatcher."""

    event: Ears | Woken


def step(state: Listening, events: Sequence[Any], now: float) -> tuple[Listening, list[Any]]:
    """One turn of the listener."""
    actions: list[Any] = []
    for event in events:
        match event:
            case Listened(heard=True, jitter=jitter):
                state = Listening(check_at=now + CHECK_INTERVAL, retry_at=None)
                # Anything may have been missed until now.
                actions += [Tell(Ears(True)), Tell(Woken(jitter))]
            case Listened(for_good=for_good):
                state = Listening(retry_at=None if for_good else now + UNHEARD_PAUSE)
            case Heard(notified=True, jitter=jitter):
                state = replace(state, check_at=now + CHECK_INTERVAL)
                actions.append(Tell(Woken(jitter)))
            case Checked():
                state = replace(state, check_at=now + CHECK_INTERVAL)
            case Failed(retry_in=retry_in):
                if state.check_at is not None:
                    actions.append(Tell(Ears(False)))
                state = Listening(retry_at=now + retry_in)
    return state, [*actions, _next(state, now)]


def _next(state: Listening, now: float) -> Any:
    if state.check_at is not None:
        return Check() if now >= state.check_at else Hear(state.check_at)
    if state.retry_at is None or now < state.retry_at:
        return WaitUntil(state.retry_at)
    return Listen()
