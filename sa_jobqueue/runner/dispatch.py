"""When to claim, and how much: the dispatcher's pure step.

Every queue is a lane with a limit of handlers at once. A lane claims for its free slots, and ahead of them only as
much as its handlers will start within a blink at the pace seen lately: short jobs are claimed in large batches, long
ones never wait here while another runner is idle. Nothing here knows SQL, threads or handlers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import End, Failed, WaitUntil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: A lane claims ahead what it starts in this many seconds, up to a bound that keeps one runner's death cheap.
CLAIM_AHEAD_SECONDS, CLAIM_AHEAD_LIMIT = 0.1, 1000
#: The time constant, in seconds, of the pace that a lane remembers.
PACE_MEMORY = 0.5
#: Jobs that were claimed ahead are given back when no handler of their queue has finished for so many seconds.
CLAIM_AHEAD_PATIENCE = 1.0
#: A claim that came back short is followed by one more look this soon, in seconds, then by the poll interval.
SECOND_LOOK = 0.05
#: Poll intervals vary by this share, so that runners started together don't stay together.
POLL_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Lane:
    """One queue: `held` jobs are claimed and not finished; `pace` is handlers finished per second, lately."""

    limit: int
    held: int = 0
    pace: float = 0.0
    paced_at: float = 0.0

    def freed(self, count: int, now: float) -> Lane:
        elapsed = max(now - self.paced_at, 1e-3)
        kept = math.exp(-elapsed / PACE_MEMORY)
        pace = self.pace * kept + (1 - kept) * count / elapsed
        return replace(self, held=self.held - count, pace=pace, paced_at=now)

    def wanted(self, now: float) -> int:
        """How many to claim now; 0 while enough is waiting, so that batches stay large."""
        pace = self.pace * math.exp(-(now - self.paced_at) / PACE_MEMORY)
        ahead = min(int(pace * CLAIM_AHEAD_SECONDS), CLAIM_AHEAD_LIMIT)
        room = self.limit + ahead - self.held
        return room if room > 0 and (self.held <= self.limit or room >= (self.limit + ahead) // 2) else 0

    @property
    def stalls_at(self) -> float | None:
        """When waiting jobs become somebody else's chance: None while none waits here."""
        return self.paced_at + CLAIM_AHEAD_PATIENCE if self.held > self.limit else None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The dispatcher's state."""

    lanes: Mapping[str, Lane]
    poll_interval: float
    burst: bool = False
    not_before: float = 0.0
    blocked: bool = False
    second_look: bool = True


@dataclass(frozen=True, slots=True)
class Freed:
    """Event: so many handlers of each queue have finished."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Event: what a claim brought, against what was asked; `unsettled` jobs were held when it was sent."""

    asked: Mapping[str, int]
    got: Mapping[str, int]
    unsettled: int
    jitter: float


@dataclass(frozen=True, slots=True)
class OutcomesBlocked:
    """Event: outcomes can't be written (True), or can again (False). Until then nothing new is claimed."""

    blocked: bool


@dataclass(frozen=True, slots=True)
class Woken:
    """Event: there may be work; look now."""


@dataclass(frozen=True, slots=True)
class StopClaiming:
    """Event: claim no more, give back what never began."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Action: claim up to so many of each queue."""

    quotas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Action: release the claimed jobs of these queues that no handler has begun."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drained:
    """Action: a burst has nothing left to do."""


def step(state: Dispatch, events: Sequence[Any], now: float) -> tuple[Dispatch, list[Any]]:
    """One turn of the dispatcher."""
    actions: list[Any] = []
    for event in events:
        match event:
            case Freed(counts):
                state = replace(state, lanes=_with(state.lanes, {q: -n for q, n in counts.items()}, now))
            case Claimed():
                state = _after_claim(state, event, now)
                if state.burst and not any(event.got.values()) and event.unsettled == 0:
                    actions.append(Drained())
            case Failed(retry_in=retry_in):
                state = replace(state, not_before=now + retry_in)
            case OutcomesBlocked(blocked):
                state = replace(state, blocked=blocked)
            case Woken():
                state = replace(state, not_before=0.0)
            case StopClaiming():
                return state, [GiveBack(tuple(state.lanes)), End()]
    state, last = _claim_or_wait(state, now)
    return state, [*actions, *last]


def _with(lanes: Mapping[str, Lane], change: Mapping[str, int], now: float) -> Mapping[str, Lane]:
    """The lanes with claimed (positive) or finished (negative) jobs counted."""
    changed = {}
    for queue, count in change.items():
        lane = lanes[queue]
        changed[queue] = replace(lane, held=lane.held + count) if count > 0 else lane.freed(-count, now)
    return {**lanes, **changed}


def _after_claim(state: Dispatch, claimed: Claimed, now: float) -> Dispatch:
    state = replace(state, lanes=_with(state.lanes, {q: n for q, n in claimed.got.items() if n}, now))
    if all(claimed.got.get(queue, 0) >= asked for queue, asked in claimed.asked.items()):
        return replace(state, not_before=0.0, second_look=True)
    if any(claimed.got.values()) and state.second_look:
        # The queue ran dry under our hands: producers are at work, so look once more before settling down.
        wait, second_look = min(SECOND_LOOK, state.poll_interval), False
    else:
        wait, second_look = state.poll_interval * (1 - POLL_JITTER * claimed.jitter), True
        if state.burst and claimed.unsettled:
            wait = min(SECOND_LOOK, wait)
    return replace(state, not_before=now + wait, second_look=second_look)


def _claim_or_wait(state: Dispatch, now: float) -> tuple[Dispatch, list[Any]]:
    stalls = {queue: at for queue, lane in state.lanes.items() if (at := lane.stalls_at) is not None}
    if stalled := tuple(queue for queue, at in stalls.items() if now >= at):
        # Their releases come back as freed slots; until then the lane's pace counts from now.
        lanes = {queue: replace(state.lanes[queue], paced_at=now, pace=0.0) for queue in stalled}
        state = replace(state, lanes={**state.lanes, **lanes})
        state, actions = _claim_or_wait(state, now)
        return state, [GiveBack(stalled), *actions]
    quotas = {queue: wanted for queue, lane in state.lanes.items() if (wanted := lane.wanted(now))}
    if quotas and not state.blocked and now >= state.not_before:
        return state, [Claim(quotas)]
    times = [*stalls.values()]
    if quotas and not state.blocked:
        times.append(state.not_before)
    return state, [WaitUntil(min(times, default=None))]
