"""From an outcome to a row: the settler's pure step.

Outcomes are written in batches: whatever gathered while the previous write was under way goes into the next one, with
no timer between. An outcome stays pending until its write has landed or its lease is known to be another's. Nothing
here knows SQL or threads; what an outcome *means* is decided in `verdict`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_jobqueue.loop import End, Failed, WaitUntil, backoff
from sa_jobqueue.records import Landing
from sa_jobqueue.runner.dispatch import Freed, OutcomesBlocked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_jobqueue.records import Settled, Settlement
    from sa_jobqueue.runner.executors import Execution

#: The largest batch of outcomes in one write.
BATCH_LIMIT = 1000
#: A row that somebody else has locked is tried again after this many seconds, doubling up to the longest.
FIRST_BUSY_WAIT, LONGEST_BUSY_WAIT = 0.05, 5.0


@dataclass(frozen=True, slots=True)
class Finished:
    """Event: an execution has its outcome. `seconds` is the handler's own time; `freed` tells whether it took a slot."""

    execution: Execution
    settlement: Settlement
    seconds: float = 0.0
    freed: bool = True


@dataclass(frozen=True, slots=True)
class Answered:
    """Event: the store's answers to one batch, in its order."""

    batch: Sequence[Finished]
    answers: Sequence[Settled]


@dataclass(frozen=True, slots=True)
class StopSettling:
    """Event: end as soon as nothing is pending."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Action: hand an event to the dispatcher."""

    event: Freed | OutcomesBlocked


@dataclass(frozen=True, slots=True)
class Flush:
    """Action: write a batch; leases in `renew` are renewed first, for they were found expired."""

    batch: tuple[Finished, ...]
    renew: bool = False


@dataclass(frozen=True, slots=True)
class Conclude:
    """Action: these outcomes are decided, landed or not: report them and let go of their jobs."""

    batch: Sequence[Finished]
    answers: Sequence[Settled]


@dataclass(frozen=True, slots=True)
class Waiting:
    """An outcome that found its row locked: tried again at `due`."""

    finished: Finished
    due: float
    wait: float


@dataclass(frozen=True, slots=True)
class Settling:
    """The settler's state: outcomes in their order, those that wait for a lock, those whose lease must be renewed."""

    pending: tuple[Finished, ...] = ()
    expired: tuple[Finished, ...] = ()
    busy: tuple[Waiting, ...] = ()
    waits: Mapping[tuple[int, Any], float] | None = None
    failures: int = 0
    not_before: float = 0.0
    stopping: bool = False


def step(state: Settling, events: Sequence[Any], now: float) -> tuple[Settling, list[Any]]:
    """One turn of the settler."""
    actions: list[Any] = []
    arrived: list[Finished] = []
    for event in events:
        match event:
            case Finished():
                arrived.append(event)
            case Answered():
                if state.failures:
                    actions.append(Tell(OutcomesBlocked(False)))
                state, concluded = _after_answers(replace(state, failures=0, not_before=0.0), event, now)
                if concluded is not None:
                    actions.append(concluded)
            case Failed(action=Flush() as flush, jitter=jitter):
                if not state.failures:
                    actions.append(Tell(OutcomesBlocked(True)))
                failures = state.failures + 1
                state = replace(state, failures=failures, not_before=now + backoff(failures, jitter))
                # Renewed first: after an outage the leases may be past, and a completion then needs its lease.
                state = replace(state, expired=(*flush.batch, *state.expired))
            case StopSettling():
                state = replace(state, stopping=True)
    if arrived:
        state = replace(state, pending=(*state.pending, *arrived))
        if counts := Counter(one.execution.job.queue for one in arrived if one.freed):
            # Told before the write: a slot is free when its handler is done, not when the row says so.
            actions.append(Tell(Freed(counts)))
    state, last = _flush_or_wait(state, now)
    return state, [*actions, last]


def _after_answers(state: Settling, answered: Answered, now: float) -> tuple[Settling, Conclude | None]:
    batch, answers = answered.batch, answered.answers
    if all(answer.landing is Landing.LANDED for answer in answers):
        return state, Conclude(batch, answers)
    decided: list[tuple[Finished, Settled]] = []
    expired: list[Finished] = []
    busy: list[Waiting] = []
    waits = dict(state.waits or {})
    for finished, answer in zip(batch, answers, strict=True):
        key = finished.execution.key
        match answer.landing:
            case Landing.BUSY:
                wait = min(waits.get(key, FIRST_BUSY_WAIT / 2) * 2, LONGEST_BUSY_WAIT)
                waits[key] = wait
                busy.append(Waiting(finished, now + wait, wait))
            case Landing.EXPIRED:
                expired.append(finished)
            case _:
                waits.pop(key, None)
                decided.append((finished, answer))
    state = replace(state, expired=(*state.expired, *expired), busy=(*state.busy, *busy), waits=waits or None)
    if not decided:
        return state, None
    return state, Conclude([finished for finished, _ in decided], [answer for _, answer in decided])


def _flush_or_wait(state: Settling, now: float) -> tuple[Settling, Any]:
    if due := tuple(waiting for waiting in state.busy if waiting.due <= now):
        state = replace(
            state,
            pending=(*state.pending, *(waiting.finished for waiting in due)),
            busy=tuple(waiting for waiting in state.busy if waiting.due > now),
        )
    if now < state.not_before:
        return state, WaitUntil(state.not_before)
    if state.expired:
        batch, rest = state.expired[:BATCH_LIMIT], state.expired[BATCH_LIMIT:]
        return replace(state, expired=rest), Flush(batch, renew=True)
    if state.pending:
        batch, rest = state.pending[:BATCH_LIMIT], state.pending[BATCH_LIMIT:]
        return replace(state, pending=rest), Flush(batch)
    if state.busy:
        return state, WaitUntil(min(waiting.due for waiting in state.busy))
    return state, End() if state.stopping else WaitUntil(None)
