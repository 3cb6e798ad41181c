"""When to claim, and how much: the dispatcher's pure step.

What each queue wants is decided in `pace`, where its claims begin in `low_water`, how a runner waits that finds nothing
in `idling`, what becomes of claims without an answer in `lost_claims`. Nothing here knows SQL, threads or handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.runner.idling import WAIT, Idling
from sa_jobqueue.runner.lost_claims import LostClaim, after_answer, after_failure, at_the_end
from sa_jobqueue.runner.low_water import LowWater, Sight
from sa_jobqueue.runner.pace import POLL_JITTER, SECOND_LOOK, Lane
from sa_jobqueue.store.trouble import nothing_landed, passes_by_itself, refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sa_jobqueue.records import ClaimedJob, Marks

#: With more outcomes than this still to be written nothing is claimed: a crash would run all of them again.
UNWRITTEN_LIMIT = 5000

_HANGING = "have lost their jobs, by their timeout or their lease, hold them all and do not end"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


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


@dataclass(frozen=True, slots=True)
class Freed:
    """Event: so many handlers of each queue have finished, and so many jobs left before they began.

    `running` outcomes more were decided in place of handlers that still run, and keep their slots.
    """

    finished: Mapping[str, int]
    unstarted: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    running: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """Event: what a claim brought, against what was asked; `unsettled` jobs were held when it was sent.

    `behind` are the marks at which it began, `sight` is what it saw.
    """

    asked: Mapping[str, int]
    got: Mapping[str, int]
    unsettled: int
    jitter: float
    behind: Mapping[str, Marks] = field(default_factory=lambda: _NOTHING)
    sight: Sight = field(default_factory=Sight)


@dataclass(frozen=True, slots=True)
class Counted:
    """Event: so many jobs are held."""

    unsettled: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Event: these jobs are back in their queues, at their old places."""

    jobs: Sequence[ClaimedJob]


@dataclass(frozen=True, slots=True)
class Released:
    """Event: the release of a lost claim has been answered."""

    token: UUID


@dataclass(frozen=True, slots=True)
class Written:
    """Event: so many outcomes are decided, after their handlers were told as freed."""

    count: int


@dataclass(frozen=True, slots=True)
class OutcomesBlocked:
    """Event: outcomes can't be written (True), or can again (False). Until then nothing new is claimed."""

    blocked: bool


@dataclass(frozen=True, slots=True)
class Ears:
    """Event: from now on what is notified is heard, or is not."""

    open: bool


@dataclass(frozen=True, slots=True)
class Woken:
    """Event: something was committed, or may have been; `jitter` is a random number below 1."""

    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class DueIn:
    """Event: a job of these queues becomes due in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Announced:
    """Event: the flag is set since `sent_at` at the latest; so many `others` wait, and the next job is due in so many seconds."""

    others: int
    next_due: float | None
    sent_at: float
    jitter: float


@dataclass(frozen=True, slots=True)
class Silenced:
    """Event: the flag is taken back; `refused` when the database does not let us set it."""

    refused: bool = False


@dataclass(frozen=True, slots=True)
class StopClaiming:
    """Event: claim no more, give back what never began; releases of lost claims are tried until this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Claim:
    """Action: claim up to so many of each queue under this token; of some queues only what comes after their marks."""

    token: UUID
    quotas: Mapping[str, int]
    behind: Mapping[str, Marks] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Announce:
    """Action: set the flag that says that this runner waits for jobs, for so many seconds; None takes it back."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Count:
    """Action: count the jobs that are held."""


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Action: give back whatever the claim with this token took."""

    token: UUID


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Action: release the claimed jobs of these queues that no handler has begun."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drained:
    """Action: a burst has nothing left to do, or can do nothing: then `fault` says why."""

    fault: Exception | None = None


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
                at = now + state.idle.spread(jitter, state.poll_interval)
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
    idle, poll = state.idle, state.poll_interval
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
        lanes[queue] = lanes[queue].looked(asked=asked, got=got, now=now, poll=wait, woken=woken)
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
    if (at := idle.silences_at(now)) is not None:
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
