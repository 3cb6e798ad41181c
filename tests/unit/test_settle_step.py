"""The settler's step: batches, rows that are busy, leases that are past, lost answers, the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.records import Landing
from sa_jobqueue.runner.dispatch_messages import Freed, OutcomesBlocked, Written
from sa_jobqueue.runner.settle import (
    BATCH_LIMIT,
    FIRST_WAIT,
    LONGEST_WAIT,
    Answered,
    Conclude,
    Finished,
    Flush,
    Postpone,
    Settling,
    StopSettling,
    Tell,
    freed,
    step,
)
from sa_jobqueue.states import Verb
from tests.support.executions import finished, settled

BUSY, EXPIRED, LANDED, LOST, GONE = (
    Landing.BUSY,
    Landing.EXPIRED,
    Landing.LANDED,
    Landing.LOST,
    Landing.GONE,
)


def _answered(flush: Flush, *landings: Landing) -> Answered:
    """The store's answer to a flush; LANDED for those that nothing is said about."""
    given = [*landings, *[LANDED] * (len(flush.batch) - len(landings))]
    answers = [settled(one, landing) for one, landing in zip(flush.batch, given, strict=True)]
    return Answered(flush.batch, answers, flush.again)


def _of(kind: type[Any], actions: Sequence[Any]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def _sent(state: Settling, *outcomes: Finished, now: float = 0.0) -> tuple[Settling, Flush]:
    state, actions = step(state, outcomes, now)
    (flush,) = _of(Flush, actions)
    return state, flush


def test_what_has_gathered_goes_into_one_write() -> None:
    """No timer: the first outcome is written at once, those that come meanwhile together after it."""
    first, *rest = [finished() for _ in range(20)]
    state, flush = _sent(Settling(), first)
    assert flush == Flush((first,))
    _, actions = step(state, [_answered(flush), *rest], 1.0)
    assert _of(Conclude, actions)[0].batch == (first,)
    assert _of(Flush, actions) == [Flush(tuple(rest))]


def test_batches_are_bounded_and_keep_their_order() -> None:
    """A flood is written in pieces, the oldest first, and none is left."""
    flood = [finished() for _ in range(BATCH_LIMIT * 2 + 5)]
    state, flush = _sent(Settling(), *flood)
    written: list[Finished] = []
    sizes = []
    while True:
        written += flush.batch
        sizes.append(len(flush.batch))
        state, actions = step(state, [_answered(flush)], 0.0)
        if not (flushes := _of(Flush, actions)):
            break
        flush = flushes[0]
    assert written == flood
    assert sizes == [BATCH_LIMIT, BATCH_LIMIT, 5]
    assert state == Settling()


def test_what_is_decided_is_told() -> None:
    """The dispatcher hears how many outcomes are written; of ended handlers it has heard already."""
    outcomes = [finished(queue="a"), finished(queue="a"), finished(Verb.RELEASE, queue="b", seconds=None)]
    state, (flush,) = step(Settling(), outcomes, 0.0)
    assert isinstance(flush, Flush)
    _, actions = step(state, [_answered(flush)], 0.0)
    assert _of(Tell, actions) == [Tell(Written(3))]


def test_what_has_ended_is_told_apart_from_what_never_began() -> None:
    """Only the former tells how long jobs take; what still runs keeps its slot."""
    outcomes = [finished(queue="a"), finished(queue="a"), finished(Verb.RELEASE, queue="b", seconds=None)]
    outcomes.append(finished(seconds=None)._replace(still_runs=True))
    assert freed(outcomes) == Freed({"a": 2}, {"b": 1}, running=1)


def test_an_outcome_in_place_of_a_running_handler_frees_no_slot() -> None:
    """It is written as any other; the slot is free when the handler has ended."""
    one = finished(seconds=None)._replace(still_runs=True)
    _, actions = step(Settling(), [one, finished(queue="a")], 0.0)
    assert actions[0] == Tell(Freed({}, {}, running=1))
    assert isinstance(actions[1], Flush)
    assert one in actions[1].batch


def test_a_busy_row_waits_alone_with_doubling_pauses() -> None:
    """Somebody's lock on one row delays that row only, ever longer up to a bound, and its neighbours go on."""
    held, neighbour = finished(), finished()
    state, flush = _sent(Settling(), held, neighbour)
    state, actions = step(state, [_answered(flush, BUSY, LANDED)], 0.0)
    assert _of(Conclude, actions)[0].batch == [neighbour]
    assert _of(Tell, actions) == [Tell(Written(1))]
    waits, now = [], 0.0
    for _ in range(10):
        (postponed,) = _of(Postpone, actions)
        (delay,) = postponed.delays
        waits.append(delay.wait)
        later = finished()
        state, flush = _sent(state, later, now=now)
        assert flush.batch == (later,)
        state, actions = step(state, [_answered(flush)], now)
        assert actions[-1] == WaitUntil(now + delay.wait)
        now += delay.wait
        state, actions = step(state, (), now)
        assert actions == [Flush((held,))]
        state, actions = step(state, [_answered(actions[0], BUSY)], now)
    assert waits == [min(FIRST_WAIT * 2**n, LONGEST_WAIT) for n in range(10)]


def test_waits_are_forgotten_with_their_row() -> None:
    """Millions of jobs that were busy once leave nothing behind, whatever became of them."""
    state = Settling()
    for landing in (LANDED, LOST, GONE):
        state, flush = _sent(state, finished())
        state, actions = step(state, [_answered(flush, BUSY)], 0.0)
        state, actions = step(state, (), 10.0)
        (flush,) = actions
        state, actions = step(state, [_answered(flush, landing)], 10.0)
        assert len(_of(Conclude, actions)) == 1
    assert state == Settling()


def test_an_expired_lease_is_renewed_and_sent_again_at_once() -> None:
    """Past is not lost: the write is repeated as one that renews first."""
    one = finished()
    state, flush = _sent(Settling(), one)
    state, actions = step(state, [_answered(flush, EXPIRED)], 0.0)
    assert _of(Postpone, actions)[0].delays[0].wait == 0.0
    assert actions[-1] == Flush((one,), again=True)


def test_a_lease_that_stays_past_holds_up_nobody() -> None:
    """Somebody's lock that outlives the lease keeps the renewal out as well: it waits like any other busy row."""
    held = finished()
    state, flush = _sent(Settling(), held)
    state, actions = step(state, [_answered(flush, EXPIRED)], 0.0)
    state, actions = step(state, [_answered(actions[-1], EXPIRED)], 0.0)
    assert actions[-1] == WaitUntil(FIRST_WAIT)
    neighbour = finished()
    state, flush = _sent(state, neighbour)
    assert flush == Flush((neighbour,))
    state, _ = step(state, [_answered(flush)], 0.0)
    _, actions = step(state, (), FIRST_WAIT)
    assert actions == [Flush((held,), again=True)]


def test_a_failed_write_is_sent_again_after_its_pause() -> None:
    """Its answer may be lost, so what is repeated is reconciled; meanwhile the dispatcher is told to wait."""
    one, late = finished(), finished()
    state, flush = _sent(Settling(), one)
    state, actions = step(state, [Failed(flush, Exception(), 2.0)], 10.0)
    assert actions == [Tell(OutcomesBlocked(True)), WaitUntil(12.0)]
    state, actions = step(state, [late], 11.0)
    assert actions[-1] == WaitUntil(12.0)
    state, actions = step(state, (), 12.0)
    assert actions == [Flush((one,), again=True)]
    state, actions = step(state, [Failed(actions[0], Exception(), 4.0)], 12.0)
    assert actions == [WaitUntil(16.0)]
    state, (flush,) = step(state, (), 16.0)
    state, actions = step(state, [_answered(flush)], 16.0)
    assert _of(Tell, actions) == [Tell(OutcomesBlocked(False)), Tell(Written(1))]
    assert _of(Flush, actions) == [Flush((late,))]


def test_a_lost_answer_stays_in_doubt_behind_a_lock() -> None:
    """The first write may still be in flight and hold the row: busy must not make it an ordinary try again."""
    one = finished()
    state, flush = _sent(Settling(), one)
    state, (*_, flush) = step(state, [Failed(flush, Exception(), 0.0)], 0.0)
    state, _ = step(state, [_answered(flush, BUSY)], 0.0)
    state, actions = step(state, (), 1.0)
    assert actions == [Flush((one,), again=True)]


@pytest.mark.parametrize("landing", [LANDED, LOST, GONE])
def test_what_is_decided_is_concluded_once(landing: Landing) -> None:
    """Landed, lost and gone are final: reported, and never written again."""
    one = finished()
    state, flush = _sent(Settling(), one)
    state, actions = step(state, [_answered(flush, landing)], 0.0)
    (conclusion,) = _of(Conclude, actions)
    assert [answer.landing for answer in conclusion.answers] == [landing]
    assert state == Settling()


def test_what_follows_a_completion_in_doubt_is_reconciled_from_its_first_try_on() -> None:
    """Its lease is renewed and what has landed counts, as if it had been sent before; its neighbours go as ever."""
    usual, doubtful = finished(), finished(Verb.RETRY)._replace(again=True)
    state, flush = _sent(Settling(), usual, doubtful)
    assert flush == Flush((doubtful,), again=True)
    state, actions = step(state, [_answered(flush, BUSY)], 1.0)
    assert actions[-1] == Flush((usual,))
    state, actions = step(state, [_answered(actions[-1])], 1.0)
    assert actions[-1] == WaitUntil(1.0 + FIRST_WAIT)
    assert step(state, (), 1.0 + FIRST_WAIT)[1] == [Flush((doubtful,), again=True)], (
        "its COMMIT may be under way"
    )


def test_a_stop_drains_first() -> None:
    """It ends when all is written, busy rows included, and not before."""
    one, busy = finished(), finished()
    state, flush = _sent(Settling(), one, busy)
    state, actions = step(state, [_answered(flush, LANDED, BUSY), StopSettling(until=60.0)], 0.0)
    assert actions[-1] == WaitUntil(FIRST_WAIT)
    state, (flush,) = step(state, (), FIRST_WAIT)
    _, actions = step(state, [_answered(flush)], FIRST_WAIT)
    assert actions[-1] == End()


def test_a_stop_ends_in_time_when_nothing_can_be_written() -> None:
    """A database that is away must not keep a thread of a stopped runner alive."""
    state, flush = _sent(Settling(), finished())
    state, actions = step(state, [Failed(flush, Exception(), 30.0), StopSettling(until=5.0)], 0.0)
    assert actions[-1] == WaitUntil(5.0)
    assert step(state, (), 5.0)[1] == [End()]


def test_a_stop_of_an_idle_settler_ends_it_at_once() -> None:
    """Nothing pending, nothing to wait for."""
    assert step(Settling(), [StopSettling(until=5.0)], 0.0)[1] == [End()]


@pytest.mark.parametrize("action", [Tell(Written(1)), Conclude((), ()), Postpone(())])
def test_what_asks_no_database_does_not_fail(action: Any) -> None:
    """Untold, the dispatcher would wait for ever for its slots, and undropped, the runner would hold the job: a fault."""
    with pytest.raises(ZeroDivisionError):
        step(Settling(), [Failed(action, ZeroDivisionError(), 0.1)], 0.0)
