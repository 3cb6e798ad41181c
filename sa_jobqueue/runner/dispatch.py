"""When to claim, and how much: the dispatcher's pure step.

What each queue wants is decided in `pace`, where its claims begin in `low_water`, how a runner waits that finds nothing
in `idling`, what becomes of claims without an answer in `lost_claims`. Nothing here knows SQL, threads or handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.runner.dispatch_messages import (
    Announce,
    Announced,
    Claim,
    Claimed,
    Count,
    Counted,
    Drained,
    DueIn,
    Ears,
    Freed,
    GiveBack,
    GivenBack,
    OutcomesBlocked,
    ReleaseClaim,
    Released,
    Silenced,
    StopClaiming,
    Woken,
    Written,
)
from sa_jobqueue.runner.idling import WAIT, Idling
from sa_jobqueue.runner.lost_claims import LostClaim, after_answer, after_failure, at_the_end
from sa_jobqueue.runner.low_water import LowWater
from sa_jobqueue.runner.pace import POLL_JITTER, SECOND_LOOK, Lane
from sa_jobqueue.store.trouble import nothing_landed, passes_by_itself, refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


#: With more outcomes than this still to be written nothing is claimed: a crash would run all of them again.
UNWRITTEN_LIMIT = 5000

_HANGING = "have lost their jobs, by their timeout or their lease, hold them all and do not end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The dispatcher's state; times in seconds. `token` is the next claim's, each used once.

    For a burst: when to count again what is held, and how long handlers may occupy all slots of a queue that hold no job.
    """

    lanes: Mapping[str, Lane]
    poll_interval: float
    lease: float
    renewal_interval: float
    token: UUID
    burst: bool = False
    blocked: bool = False
    unwritten: int = 0
    failing_until: float = 0.0
    lost: tuple[LostClaim, ...] = ()
    low_water: LowWater = field(default_factory=LowWater)
    idle: Idling = field(default_factory=Idling)
    ends_at: float | None = None
    count_at: float = 0.0
    occupied_until: float | None = None


def step(state: Dispatch, events: Sequence[Any], now: float) -> tuple[Dispatch, list[Any]]:
    """One turn of the dispatcher."""
    actions: list[Any] = []
    looked: list[Collection[str] | None] = []
    for event in events:
        match event:
            case Freed():
                state = _after_freed(state, event, now)
            case Claimed():
                state = _after_claim(state, event, now)
                if not _must_look_again(state, event):
                    looked.append(event.asked if _found_nothing(state, event) else None)
            case Counted(unsettled):
                looked.append(None if unsettled else ())
            case GivenBack(jobs):
                state = replace(state, low_water=state.low_water.returned(jobs))
            case Released(token):
                lost = after_answer(state.lost, token, now=now, interval=state.renewal_interval)
                # Which jobs came back nobody knows.
                state = replace(state, lost=lost, low_water=state.low_water.forgotten())
            case Failed(action=ReleaseClaim(token), retry_in=retry_in):
                # As with renewals: after an outage we want to be here before anybody rescues.
                due = now + min(retry_in, state.renewal_interval / 4)
                state = replace(state, lost=after_failure(state.lost, token, due=due))
            case Failed(action=Claim(token), error=error, retry_in=retry_in):
                state = replace(state, failing_until=now + retry_in)
                if state.burst and refused(error) and not passes_by_itself(error):
                    actions.append(Drained(error))
                if not nothing_landed(error):
                    claim = LostClaim(token, until=now + state.lease, due=now + retry_in)
                    state = replace(state, lost=(*state.lost, claim))
            case Written(count):
                state = replace(state, unwritten=state.unwritten - count)
            case OutcomesBlocked(blocked):
                state = replace(state, blocked=blocked)
            case Ears(ears):
                state = replace(state, idle=state.idle.hears(ears))
            case Woken(jitter):
                at = state.idle.looks_at(now, jitter=jitter, poll=state.poll_interval)
                state = replace(_look_at(state, at), idle=state.idle.woken(poll=state.poll_interval))
            case DueIn(seconds):
                state = replace(state, idle=state.idle.due_in(seconds, now, poll=state.poll_interval))
            case Announced():
                state = _after_announcement(state, event, now)
            case Silenced(refused=turned_down):
                idle = state.idle.refused(now) if turned_down else state.idle.silenced()
                state = replace(state, idle=idle)
            case Failed(action=Announce(), retry_in=retry_in):
                state = replace(state, idle=state.idle.failed(now + retry_in))
            case Failed(error=error):
                raise error  # what asks no database has no reason to fail, and is not done again
            case StopClaiming(until):
                state = replace(state, ends_at=until, lost=at_the_end(state.lost, now=now))
                actions.append(GiveBack(tuple(state.lanes)))
    if state.ends_at is not None:
        return state, [*actions, *_wind_up(state, state.ends_at, now)]
    if state.burst and looked:
        state, over = _after_look(state, looked[-1], now)
        actions += over
    state, last = _next(state, now)
    return state, [*actions, *last]


def _after_freed(state: Dispatch, freed: Freed, now: float) -> Dispatch:
    lanes = dict(state.lanes)
    for queue, count in freed.finished.items():
        lanes[queue] = lanes[queue].finished(count, now)
    for queue, count in freed.unstarted.items():
        lanes[queue] = lanes[queue].unstarted(count)
    more = sum(freed.finished.values()) + sum(freed.unstarted.values()) + freed.running
    return replace(state, lanes=lanes, unwritten=state.unwritten + more)


def _after_claim(state: Dispatch, claimed: Claimed, now: float) -> Dispatch:
    idle, poll = state.idle.answered(now, found=any(claimed.got.values())), state.poll_interval
    if any(claimed.got.get(queue, 0) < asked for queue, asked in claimed.asked.items()):
        idle = idle.looked(now, poll=poll)
    if woken := idle.ears and idle.stands(now):
        poll = idle.pause
    poll *= 1 - POLL_JITTER * claimed.jitter
    if state.burst and claimed.unsettled:
        poll = min(SECOND_LOOK, poll)
    low_water = state.low_water.looked(
        *(claimed.asked, claimed.got, claimed.behind, claimed.sight), now=now, jitter=claimed.jitter
    )
    if _must_look_again(state, claimed):
        low_water = low_water.forgotten()
    lanes = dict(state.lanes)
    for queue, asked in claimed.asked.items():
        # What stands behind the marks waits for a full look, however seldom the queue is looked at.
        until = low_water.full_at.get(queue, 0.0) - now if queue in claimed.behind else poll
        wait, got = min(poll, max(until, 0.0)), claimed.got.get(queue, 0)
        lanes[queue] = lanes[queue].looked(
            asked=asked, got=got, size=claimed.sizes.get(queue, 0), now=now, poll=wait, woken=woken
        )
    return replace(state, lanes=lanes, idle=idle, low_water=low_water)


def _must_look_again(state: Dispatch, claimed: Claimed) -> bool:
    """A burst that has found nothing behind the marks, and has nothing in work, looks through everything at once."""
    return state.burst and bool(claimed.behind) and not claimed.unsettled and not any(claimed.got.values())


def _look_at(state: Dispatch, at: float) -> Dispatch:
    return replace(state, lanes={queue: lane.sooner(at) for queue, lane in state.lanes.items()})


def _after_announcement(state: Dispatch, announced: Announced, now: float) -> Dispatch:
    anew = not state.idle.stands(announced.sent_at)
    idle = state.idle.announced(
        others=announced.others,
        next_due=announced.next_due,
        sent_at=announced.sent_at,
        now=now,
        jitter=announced.jitter,
        poll=state.poll_interval,
    )
    # Whoever was committed before the flag was set has told nobody.
    return replace(_look_at(state, now) if anew else state, idle=idle)


def _found_nothing(state: Dispatch, claimed: Claimed) -> bool:
    """No due job where it was asked for, and none here that may become one: in work, unwritten, or in a lost claim."""
    return (
        claimed.unsettled == 0
        and not any(claimed.got.values())
        and all(claim.answered for claim in state.lost)
    )


def _after_look(state: Dispatch, empty: Collection[str] | None, now: float) -> tuple[Dispatch, list[Any]]:
    """Whether a burst is over: these queues have nothing due while no job is held; None when one was or some had.

    Queues that could not be asked have no slot free, all held by handlers that were given up or have lost their lease.
    They get one lease more to end, for a thread that hangs would keep the burst from its end for ever.
    """
    rest = [] if empty is None else [queue for queue in state.lanes if queue not in empty]
    if empty is not None and not rest:
        return state, [Drained()]
    if empty is None or any(state.lanes[queue].wanted(now) for queue in rest):
        return replace(state, occupied_until=None), []
    if state.occupied_until is None:
        return replace(state, occupied_until=now + state.lease), []
    if now < state.occupied_until:
        return state, []
    return state, [Drained(RuntimeError(f"no slot is free in {', '.join(rest)}: handlers that {_HANGING}"))]


def _next(state: Dispatch, now: float) -> tuple[Dispatch, list[Any]]:
    """What is due, one statement at a time, or when something will be."""
    stalls = {queue: at for queue, lane in state.lanes.items() if (at := lane.stalls_at) is not None}
    if stalled := tuple(queue for queue, at in stalls.items() if now >= at):
        # Their releases come back as freed slots.
        lanes = {queue: state.lanes[queue].stalled(now) for queue in stalled}
        state, actions = _next(replace(state, lanes={**state.lanes, **lanes}), now)
        return state, [GiveBack(stalled), *actions]
    lost = min(state.lost, key=lambda claim: claim.due, default=None)
    if lost is not None and now >= lost.due:
        return state, [ReleaseClaim(lost.token)]
    times = [*stalls.values(), *(() if lost is None else (lost.due,))]
    wanted = {queue: count for queue, lane in state.lanes.items() if (count := lane.wanted(now))}
    claims = wanted and not state.blocked and state.unwritten <= UNWRITTEN_LIMIT
    looks_at = _looks_at(state, wanted) if claims else None
    state, flag_at, announce = _flag(state, looks_at, now)
    if flag_at is not None:
        if now >= flag_at:
            return state, [announce]
        times.append(flag_at)
    if looks_at is not None:
        if now >= looks_at:
            return _claim(state, wanted, now)
        times.append(looks_at)
    if state.burst and not wanted:
        if now >= state.count_at:
            return replace(state, count_at=now + state.poll_interval), [Count()]
        times.append(state.count_at)
    return state, [WaitUntil(min(times, default=None))]


def _looks_at(state: Dispatch, wanted: Mapping[str, int]) -> float:
    soonest = min(state.lanes[queue].not_before for queue in wanted)
    due_at = state.idle.due_at
    return max(state.failing_until, soonest if due_at is None else min(soonest, due_at))


def _claim(state: Dispatch, wanted: Mapping[str, int], now: float) -> tuple[Dispatch, list[Any]]:
    # Whoever looks soon joins, so that idle queues share their looks; a burst asks all to know that it is over, and
    # nobody knows the queue of what becomes due.
    due_at = state.idle.due_at
    everybody = state.burst or (due_at is not None and now >= due_at)
    soon = now + (float("inf") if everybody else state.poll_interval * POLL_JITTER)
    quotas = {queue: n for queue, n in wanted.items() if state.lanes[queue].not_before <= soon}
    following = UUID(int=(state.token.int + 1) % 2**128)
    behind = state.low_water.behind(quotas, now)
    return replace(state, token=following), [Claim(state.token, quotas, behind)]


def _flag(
    state: Dispatch, looks_at: float | None, now: float
) -> tuple[Dispatch, float | None, Announce | None]:
    """When to say what about our waiting. `looks_at` is the next look, None while nothing is wanted."""
    idle = state.idle.unwanted(now if looks_at is None else None)
    if idle is not state.idle:
        state = replace(state, idle=idle)
    if (at := idle.silences_at()) is not None:
        return state, at, Announce(None)
    # A look that is due comes first: it may end the waiting.
    if looks_at is None or now >= looks_at or (at := idle.announces_at(now)) is None:
        return state, None, None
    return state, max(at, state.failing_until), Announce(WAIT * state.poll_interval)


def _wind_up(state: Dispatch, ends_at: float, now: float) -> list[Any]:
    """Nothing is claimed any more, and nobody need wake us; each lost claim is released as long as there is time."""
    if state.idle.valid_until is not None:
        return [Announce(None)]
    lost = min(state.lost, key=lambda claim: claim.due, default=None)
    if lost is None or now >= ends_at:
        return [End()]
    return [ReleaseClaim(lost.token) if now >= lost.due else WaitUntil(min(lost.due, ends_at))]
