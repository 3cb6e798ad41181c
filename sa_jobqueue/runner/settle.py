"""From an outcome to a row: the settler's pure step.

Outcomes are written in batches: whatever gathered while the previous write was under way goes into the next one, with
no timer between. An outcome stays pending until its write has landed or its lease is known to be another's. Nothing
here knows SQL or threads; what an outcome *means* is decided in `verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.records import Landing
from sa_jobqueue.runner.dispatch_messages import Freed, OutcomesBlocked, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.records import LeaseKey, Settled, Settlement
    from sa_jobqueue.runner.executors.protocol import Execution, Interruption

#: The largest batch of outcomes in one write.
BATCH_LIMIT = 1000
#: A row that somebody else holds is tried again after this many seconds, doubling up to the longest.
FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0


class Finished(NamedTuple):
    """Event: an execution has its outcome. `seconds` is the handler's own time, None when it never began.

    `still_runs` tells an outcome that was decided in place of a handler, whose own will come, too late, when it ends.
    `cause` is the interruption that a handler's outcome came of, None for its own word. `again` says that a completion of
    the same token may have landed, or may do so yet: the outcome is sent all the same, and what has landed decides.
    """

    execution: Execution
    settlement: Settlement
    seconds: float | None
    still_runs: bool = False
    cause: Interruption | None = None
    again: bool = False

    @property
    def duration(self) -> timedelta | None:
        """The handler's own time, None when it never began."""
        return None if self.seconds is None else timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Answered:
    """Event: the store's answers to one batch, in its order; `again` is that of its flush."""

    batch: Sequence[Finished]
    answers: Sequence[Settled]
    again: bool = False


@dataclass(frozen=True, slots=True)
class StopSettling:
    """Event: end as soon as nothing is pending, and at this time in any case."""

    until: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Action: hand an event to the dispatcher."""

    event: Freed | Written | OutcomesBlocked


@dataclass(frozen=True, slots=True)
class Flush:
    """Action: write a batch.

    `again` is for outcomes that were sent before, and for those of handlers whose own completion is in doubt: their
    leases are renewed first, for they may be past, and a write of the same token that landed meanwhile counts.
    """

    batch: tuple[Finished, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class Conclude:
    """Action: these outcomes are decided, landed or not: report them and let go of their jobs."""

    batch: Sequence[Finished]
    answers: Sequence[Settled]


@dataclass(frozen=True, slots=True)
class Delay:
    """An outcome that could not be written yet, and why: tried again in `wait` seconds, at `due`.

    `again` stays with it, for an answer that was once lost may still land behind a lock. `fault` is what the database
    said when it refused the row.
    """

    finished: Finished
    landing: Landing
    due: float
    wait: float
    again: bool
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Postpone:
    """Action: report outcomes that must wait."""

    delays: Sequence[Delay]


@dataclass(frozen=True, slots=True)
class Settling:
    """The settler's state: outcomes in their order, those to be sent again, those that wait for their row.

    `waits` remembers how long those that could not be written have waited last, until they are decided.
    """

    pending: tuple[Finished, ...] = ()
    doubtful: tuple[Finished, ...] = ()
    delayed: tuple[Delay, ...] = ()
    waits: Mapping[LeaseKey, float] = field(default_factory=dict)
    blocked: bool = False
    not_before: float = 0.0
    ends_at: float | None = None


def step(state: Settling, events: Sequence[Any], now: float) -> tuple[Settling, list[Any]]:
    """One turn of the settler."""
    actions: list[Any] = []
    arrived: list[Finished] = []
    for event in events:
        match event:
            case Finished():
                arrived.append(event)
            case Answered():
                if state.blocked:
                    actions.append(Tell(OutcomesBlocked(False)))
                state, reports = _after_answers(replace(state, blocked=False, not_before=0.0), event, now)
                actions += reports
            case Failed(action=Flush() as flush, retry_in=retry_in):
                if not state.blocked:
                    actions.append(Tell(OutcomesBlocked(True)))
                # Its answer may be lost: what is tried again is reconciled with what has landed already.
                state = replace(
                    state, doubtful=(*flush.batch, *state.doubtful), blocked=True, not_before=now + retry_in
                )
            case Failed(error=error):
                raise error  # what asks no database has no reason to fail, and is not done again
            case StopSettling(until):
                state = replace(state, ends_at=until)
    if arrived:
        state = _take_up(state, arrived)
        # Of the others it hears by `slots`.
        if untold := [one for one in arrived if one.still_runs]:
            actions.append(Tell(freed(untold)))
    state, last = _flush_or_wait(state, now)
    return state, [*actions, last]


def in_place(execution: Execution, settlement: Settlement) -> Finished:
    """An outcome decided in place of a handler that still runs."""
    return Finished(execution, settlement, seconds=None, still_runs=True, again=execution.doubtful)


def _take_up(state: Settling, arrived: Sequence[Finished]) -> Settling:
    if not any(one.again for one in arrived):  # nearly always
        return replace(state, pending=(*state.pending, *arrived))
    return replace(
        state,
        pending=(*state.pending, *(one for one in arrived if not one.again)),
        doubtful=(*state.doubtful, *(one for one in arrived if one.again)),
    )


def freed(arrived: Sequence[Finished]) -> Freed:
    """What these outcomes mean for the slots of their queues."""
    finished: Counter[str] = Counter()
    unstarted: Counter[str] = Counter()
    running = 0
    for one in arrived:
        if one.still_runs:
            running += 1
        else:
            (unstarted if one.seconds is None else finished)[one.execution.job.queue] += 1
    return Freed(finished, unstarted, running)


def _after_answers(state: Settling, answered: Answered, now: float) -> tuple[Settling, list[Any]]:
    batch, answers = answered.batch, answered.answers
    if not state.waits and all(answer.landing is Landing.LANDED for answer in answers):
        return state, [Conclude(batch, answers), Tell(Written(len(batch)))]
    decided: list[tuple[Finished, Settled]] = []
    delays: list[Delay] = []
    waits = dict(state.waits)
    for finished, answer in zip(batch, answers, strict=True):
        key, expired = finished.execution.key, answer.landing is Landing.EXPIRED
        if expired or answer.landing is Landing.BUSY:
            # A lease that is past is renewed at once; one that stays past is of a row that somebody holds.
            wait = _next_wait(waits.get(key), at_once=expired)
            waits[key] = wait
            delays.append(
                Delay(
                    finished, answer.landing, now + wait, wait, expired or answered.again, fault=answer.fault
                )
            )
        else:
            waits.pop(key, None)
            decided.append((finished, answer))
    state = replace(state, delayed=(*state.delayed, *delays), waits=waits)
    actions: list[Any] = [Postpone(delays)] if delays else []
    if decided:
        actions.append(Conclude([finished for finished, _ in decided], [answer for _, answer in decided]))
        actions.append(Tell(Written(len(decided))))
    return state, actions


def _next_wait(last: float | None, *, at_once: bool) -> float:
    if last is None:
        return 0.0 if at_once else FIRST_WAIT
    return min(max(last * 2, FIRST_WAIT), LONGEST_WAIT)


def _flush_or_wait(state: Settling, now: float) -> tuple[Settling, Any]:
    if any(delay.due <= now for delay in state.delayed):
        state = _resume(state, now)
    if state.ends_at is not None and now >= state.ends_at:
        return state, End()
    if now < state.not_before:
        return state, WaitUntil(_earlier(state.not_before, state.ends_at))
    if state.doubtful:
        batch, rest = state.doubtful[:BATCH_LIMIT], state.doubtful[BATCH_LIMIT:]
        return replace(state, doubtful=rest), Flush(batch, again=True)
    if state.pending:
        batch, rest = state.pending[:BATCH_LIMIT], state.pending[BATCH_LIMIT:]
        return replace(state, pending=rest), Flush(batch)
    if state.delayed:
        return state, WaitUntil(_earlier(min(delay.due for delay in state.delayed), state.ends_at))
    return state, End() if state.ends_at is not None else WaitUntil(None)


def _resume(state: Settling, now: float) -> Settling:
    due = [delay for delay in state.delayed if delay.due <= now]
    return replace(
        state,
        pending=(*state.pending, *(delay.finished for delay in due if not delay.again)),
        doubtful=(*state.doubtful, *(delay.finished for delay in due if delay.again)),
        delayed=tuple(delay for delay in state.delayed if delay.due > now),
    )


def _earlier(time: float, ends_at: float | None) -> float:
    return time if ends_at is None else min(time, ends_at)
