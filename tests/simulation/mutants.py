"""Rules left out on purpose, one at a time: what stands in their place, and in which schedules that must be noticed.

Rules of the steps and hands of the runner, and of how they keep at it. Those of the verbs: `broken_verbs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sa_jobqueue import loop
from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.maintenance import duties
from sa_jobqueue.maintenance.prune import Pruning
from sa_jobqueue.records import Landing, LeaseKey, Settlement
from sa_jobqueue.runner import attempt, dispatch, ending, leases, listening, reports, settle
from sa_jobqueue.runner.attempt import Attempts
from sa_jobqueue.runner.book import Book
from sa_jobqueue.runner.dispatch_messages import Announce, Claim, Freed, OutcomesBlocked, Woken
from sa_jobqueue.runner.executors.protocol import Execution
from sa_jobqueue.runner.executors.threads import ThreadExecutor
from sa_jobqueue.runner.low_water import LowWater
from sa_jobqueue.runner.pace import Lane
from sa_jobqueue.runner.roles import settler
from sa_jobqueue.runner.roles.dispatcher import Dispatcher
from sa_jobqueue.runner.roles.settler import Settler
from sa_jobqueue.runner.verdict import verdict
from sa_jobqueue.states import Verb
from tests.simulation.machine import STAGE
from tests.simulation.profiles import (
    BLOCKS,
    CALM,
    DOUBTS,
    EVERYTHING,
    FLOODS,
    FORGETTING,
    LATE_JOBS,
    LEASE,
    LOST_ANSWERS,
    OUTAGES,
    PROMPT,
    TAKEOVERS,
    TALK,
    TIMEOUTS,
    Profile,
)
from tests.simulation.store import FakeStore

Patch = tuple[object, str, object]


@dataclass(frozen=True)
class Mutant:
    """`steps` replace those of the loops, `patches` attributes of the code; `noticed` names the check that must find it."""

    profile: Profile
    noticed: str
    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    patches: Sequence[Patch] = ()


def _step(step: Callable[..., Any], change: Callable[[Any, list[Any]], Any]) -> Callable[..., Any]:
    """The step with its state and actions changed afterwards."""

    def changed(state: Any, events: Sequence[Any], now: float) -> Any:
        return change(*step(state, events, now))

    return changed


def _deaf(step: Callable[..., Any], kind: type[Any]) -> Callable[..., Any]:
    """The step that does not hear of these events."""

    def deaf(state: Any, events: Sequence[Any], now: float) -> Any:
        return step(state, [event for event in events if not isinstance(event, kind)], now)

    return deaf


def _idle(step: Callable[..., Any], kind: type[Any]) -> Callable[..., Any]:
    """The step whose actions of this kind are not carried out."""
    return _step(step, lambda state, actions: (state, [one for one in actions if not isinstance(one, kind)]))


def _quitting(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step of a loop that ends after a failure, and tells nobody."""

    def quitting(state: Any, events: Sequence[Any], now: float) -> Any:
        if any(isinstance(event, Failed) for event in events):
            return state, [End()]
        return step(state, events, now)

    return quitting


def _failed_batch_dropped(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    state, actions = settle.step(state, events, now)
    if any(isinstance(event, Failed) for event in events):
        state = replace(state, doubtful=())
    return state, actions


def _slots_freed_while_handlers_run(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
    state, actions = settle.step(state, events, now)
    ended = [event._replace(still_runs=False) for event in events if getattr(event, "still_runs", False)]
    return state, [*actions, settle.Tell(settle.freed(ended))]


def _answers_taken_for(taken: Landing, instead: Landing) -> Callable[..., Any]:
    def heard(event: Any) -> Any:
        if not isinstance(event, settle.Answered):
            return event
        answers = [
            answer._replace(landing=instead) if answer.landing is taken else answer
            for answer in event.answers
        ]
        return replace(event, answers=answers)

    def step(state: settle.Settling, events: Sequence[Any], now: float) -> Any:
        return settle.step(state, [heard(event) for event in events], now)

    return step


def _doubt_forgotten(state: settle.Settling, actions: list[Any]) -> Any:
    return state, [replace(one, again=False) if isinstance(one, settle.Flush) else one for one in actions]


def _doubt_forgotten_behind_a_lock(state: settle.Settling, actions: list[Any]) -> Any:
    delayed = tuple(
        replace(delay, again=False) if delay.landing is Landing.BUSY else delay for delay in state.delayed
    )
    return replace(state, delayed=delayed), actions


def _renewals_too_rare(state: leases.Keeping, events: Sequence[Any], now: float) -> Any:
    return leases.step(replace(state, interval=LEASE * 2), events, now)


def _lost_claims_released_once(state: dispatch.Dispatch, actions: list[Any]) -> Any:
    return replace(state, lost=tuple(claim for claim in state.lost if not claim.answered)), actions


def _tokens_used_twice(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    following, actions = dispatch.step(state, events, now)
    failed = any(isinstance(event, Failed) for event in events)
    return replace(following, token=state.token) if failed else following, actions


def _never_looked_through(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    never = dict.fromkeys(state.low_water.marks, float("inf"))
    return dispatch.step(replace(state, low_water=replace(state.low_water, full_at=never)), events, now)


def _never_polled(state: dispatch.Dispatch, actions: list[Any]) -> Any:
    """Whoever waits is woken, they say."""
    waits = state.idle.valid_until is not None
    return state, [WaitUntil(None) if waits and isinstance(one, WaitUntil) else one for one in actions]


def _slots_leak(state: dispatch.Dispatch, events: Sequence[Any], now: float) -> Any:
    def counted(event: Any) -> Any:
        if isinstance(event, Freed) and sum(event.finished.values()) > 1:
            return replace(event, finished=dict.fromkeys(event.finished, 1))
        return event

    return dispatch.step(state, [counted(event) for event in events], now)


def _no_patience(state: duties.Maintaining, events: Sequence[Any], now: float) -> Any:
    hasty = tuple(replace(duty, gentle=False) for duty in state.duties)
    return duties.step(replace(state, duties=hasty), events, now)


def _patience_not_renewed(state: duties.Maintaining, events: Sequence[Any], now: float) -> Any:
    """As if the time before the outage counted after it."""
    after, actions = duties.step(state, [event for event in events if event != duties.RenewalFailed()], now)
    if duties.Connected() in events:
        after = replace(after, well_since=now - after.patience, renewed_at=now)
    return after, actions


STEPS: dict[str, Mutant] = {
    "a failed batch is dropped": Mutant(EVERYTHING, "NEVER-ENDS", steps={"settle": _failed_batch_dropped}),
    "freed slots are not heard of": Mutant(
        EVERYTHING, "NEVER-ENDS", steps={"dispatch": _deaf(dispatch.step, Freed)}
    ),
    "slots are freed while handlers run": Mutant(
        TIMEOUTS, "SLOTS", steps={"settle": _slots_freed_while_handlers_run}
    ),
    "slots leak when several are freed at once": Mutant(FLOODS, "LEFT", steps={"dispatch": _slots_leak}),
    "lost outcomes are tried for ever": Mutant(
        EVERYTHING, "LEFT", steps={"settle": _answers_taken_for(Landing.LOST, Landing.BUSY)}
    ),
    "an expired completion is thrown away": Mutant(
        EVERYTHING, "FALSE-LOST", {"settle": _answers_taken_for(Landing.EXPIRED, Landing.LOST)}
    ),
    "a lost answer is not reconciled": Mutant(
        LOST_ANSWERS, "COMPLETED-REPORTED-LOST", steps={"settle": _step(settle.step, _doubt_forgotten)}
    ),
    "a lost answer is forgotten behind a lock": Mutant(
        LOST_ANSWERS,
        "COMPLETED-REPORTED-LOST",
        steps={"settle": _step(settle.step, _doubt_forgotten_behind_a_lock)},
    ),
    "a lost lease is ignored": Mutant(
        TAKEOVERS, "RENEWED-LOST", {"leases": _idle(leases.step, leases.Judge)}
    ),
    "leases are renewed too rarely": Mutant(CALM, "LAPSED", steps={"leases": _renewals_too_rare}),
    "claims go on while outcomes are blocked": Mutant(
        EVERYTHING, "BLOCKED", {"dispatch": _deaf(dispatch.step, OutcomesBlocked)}
    ),
    "lost claims are forgotten": Mutant(
        LOST_ANSWERS,
        "CHARGED-UNBEGUN",
        steps={"dispatch": _step(dispatch.step, lambda state, actions: (replace(state, lost=()), actions))},
    ),
    "lost claims are released once": Mutant(
        LOST_ANSWERS, "CHARGED-UNBEGUN", {"dispatch": _step(dispatch.step, _lost_claims_released_once)}
    ),
    "a failed claim's token is used again": Mutant(
        LOST_ANSWERS, "TOKEN-REUSED", {"dispatch": _tokens_used_twice}
    ),
    "queues are looked through but once": Mutant(
        LATE_JOBS, "NEVER-ENDS", steps={"dispatch": _never_looked_through}
    ),
    "who waits never polls": Mutant(
        PROMPT, "NEVER-ENDS", steps={"dispatch": _step(dispatch.step, _never_polled)}
    ),
    "a wake-up is lost": Mutant(PROMPT, "LATE", {"dispatch": _deaf(dispatch.step, Woken)}),
    "the flag is never set": Mutant(PROMPT, "NEVER-ENDS", steps={"dispatch": _idle(dispatch.step, Announce)}),
    "the listener ends with its connection": Mutant(
        replace(EVERYTHING, restarts=2), "SILENT", {"listen": _quitting(listening.step)}
    ),
    "maintenance ends with its connection": Mutant(
        EVERYTHING, "SILENT", steps={"maintenance": _quitting(duties.step)}
    ),
    "the settler ends with its connection": Mutant(
        EVERYTHING, "NEVER-ENDS", steps={"settle": _quitting(settle.step)}
    ),
    "the keeper ends with its connection": Mutant(
        EVERYTHING, "SILENT", steps={"leases": _quitting(leases.step)}
    ),
    "rescue has no patience": Mutant(OUTAGES, "RESCUED-ALIVE", steps={"maintenance": _no_patience}),
    "patience does not begin anew after an outage": Mutant(
        OUTAGES, "RESCUED-ALIVE", steps={"maintenance": _patience_not_renewed}
    ),
}


def _completed_by_the_fence(execution: Execution) -> bool:
    return execution.completion is not None and execution.fenced


def _swallowed(job: Any, handler: Any, **said: Any) -> Any:
    return verdict(job, handler, **said | {"completion": None})


def _begun_though_lost(_attempts: Attempts, execution: Execution) -> bool:
    """Brought about by hand: in schedules a lease is hardly ever lost while its job waits for a thread."""
    execution.context.mark_lost()
    return True


def _judged_past_the_fence(book: Book, key: LeaseKey) -> Execution | None:
    execution = book._held.get(key)
    return None if execution is None or execution.settling else execution


def _judged_while_settled(book: Book, key: LeaseKey) -> Execution | None:
    execution = book._held.get(key)
    return None if execution is None or execution.fenced else execution


def _dropped_by_id(book: Book, keys: Any) -> None:
    ids = {job_id for job_id, _ in keys}
    _DROP(book, [key for key in book._held if key[0] in ids])


def _everybody_has_a_word(book: Book, _: Execution) -> bool:
    return not book._closed


def _read_instead_of_written(
    store: FakeStore, settlements: Sequence[Settlement], *, again: bool = False
) -> Any:
    """What is in doubt is looked up: a row that is ours shows that no completion has landed."""
    answers = _SETTLE(store, settlements, again=again)
    return [
        answer._replace(landing=Landing.LOST) if again and answer.landing is Landing.BUSY else answer
        for answer in answers
    ]


def _late_answers_used(dispatcher: Dispatcher, claim: Claim) -> Any:
    """The answer to a claim gets here after it was given up, and its jobs are begun all the same."""
    try:
        return _CLAIM(dispatcher, claim)
    except Exception:
        rows = dispatcher._store._database.rows.values()  # type: ignore[attr-defined]
        jobs = [dispatcher._store._claimed(row, row.token) for row in rows if row.token == claim.token]  # type: ignore[attr-defined]
        executions = [dispatcher._execution(job, 0.0) for job in jobs]
        dispatcher._book.hold(executions)
        dispatcher._executor.submit(executions)
        raise


def _pruned_from_the_start(pruning: Pruning, status: Any) -> Any:
    pruning._rounds[status].position = None
    return _PRUNE(pruning, status)


def _released(execution: Execution) -> Settlement:
    job_id, token = execution.key
    return Settlement(job_id, token, Verb.RELEASE)


_SETTLE, _CLAIM, _PRUNE, _DROP = FakeStore.settle, Dispatcher._claim, Pruning._prune, Book.drop
_LOOKED, _SUBMIT = Lane.looked, ThreadExecutor.submit

#: What is left out where handlers run, of what the loops share, and of what they do: what stands where.
HANDS: dict[str, Mutant] = {
    "a completion counts before its COMMIT": Mutant(
        BLOCKS, "FALSE-DONE", patches=[(Execution, "completed", property(_completed_by_the_fence))]
    ),
    "a return after a failed completion completes": Mutant(
        BLOCKS, "DONE-WITHOUT-EFFECT", patches=[(attempt, "verdict", _swallowed)]
    ),
    "the keeper judges past the fence": Mutant(
        BLOCKS, "COMPLETED-REPORTED-LOST", patches=[(Book, "judge", _judged_past_the_fence)]
    ),
    "the keeper judges what is being settled": Mutant(
        LOST_ANSWERS, "COMPLETED-REPORTED-LOST", patches=[(Book, "judge", _judged_while_settled)]
    ),
    "what follows a doubtful completion is sent as a first try": Mutant(
        DOUBTS, "COMPLETED-REPORTED-LOST", patches=[(Execution, "doubtful", property(lambda _: False))]
    ),
    "a doubtful completion is reconciled by a read": Mutant(
        DOUBTS, "FALSE-LOST", patches=[(FakeStore, "settle", _read_instead_of_written)]
    ),
    "the transaction of a doubtful completion is forgotten": Mutant(
        FORGETTING,
        "COMPLETED-REPORTED-GONE",
        patches=[(settler, "_to_send", lambda one, **_: one.settlement)],
    ),
    "jobs are let go of by their id": Mutant(TAKEOVERS, "UNHELD", patches=[(Book, "drop", _dropped_by_id)]),
    "a job is begun that was just found lost": Mutant(
        CALM, "BEGUN-LOST", patches=[(Attempts, "_begins", _begun_though_lost)]
    ),
    "a job is begun twice": Mutant(
        EVERYTHING,
        "BEGUN-TWICE",
        patches=[(ThreadExecutor, "submit", lambda executor, jobs: _SUBMIT(executor, [*jobs, *jobs]))],
    ),
    "the end waits longer than its grace": Mutant(
        EVERYTHING,
        "NEVER-STOPS",
        patches=[(ThreadExecutor, "join", lambda _executor, _seconds: STAGE.world.sleep(LEASE * 100))],
    ),
    "a completion that was in doubt is not told": Mutant(
        DOUBTS, "UNTOLD", patches=[(reports, "report_completed", lambda _finished, _subscribers: None)]
    ),
    "every handler has a word, given up or not": Mutant(
        TIMEOUTS, "FALSE-LOST", patches=[(Book, "decide", _everybody_has_a_word)]
    ),
    "a claim's answer counts after it was given up": Mutant(
        LOST_ANSWERS, "GIVEN-BACK", patches=[(Dispatcher, "_claim", _late_answers_used)]
    ),
    "the end releases what has begun": Mutant(
        EVERYTHING,
        "GIVEN-BACK",
        patches=[(ending, "_shutdown", _released)],
    ),
    "what is given back stays behind the mark": Mutant(
        FLOODS, "HIDDEN", patches=[(LowWater, "returned", lambda low_water, _jobs: low_water)]
    ),
    "the last word of progress is not written": Mutant(
        CALM, "PROGRESS-LOST", patches=[(Settler, "_report_last", lambda _settler, _keys: None)]
    ),
    "a last word does not wait for an older one": Mutant(
        TALK, "PROGRESS-LOST", patches=[(settler, "PATIENCE", 0.0)]
    ),
    "every batch of a prune begins anew": Mutant(
        FORGETTING, "KEPT-TOO-LONG", patches=[(Pruning, "_prune", _pruned_from_the_start)]
    ),
    "a loop backs off ever longer": Mutant(
        EVERYTHING, "SILENT", patches=[(loop, "backoff", lambda failures, _jitter: 4.0**failures)]
    ),
    "an empty queue is asked again at once": Mutant(
        CALM,
        "SPINS",
        patches=[(Lane, "looked", lambda lane, **told: _LOOKED(lane, **told | {"poll": 0.0}))],
    ),
}
