"""An idle dispatcher: when it says that it waits, how soon it looks after that, and when it takes it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from sa_jobqueue.loop import End, Failed, WaitUntil
from sa_jobqueue.runner.dispatch import Dispatch, step
from sa_jobqueue.runner.dispatch_messages import (
    Announce,
    Announced,
    Claim,
    Claimed,
    DueIn,
    Ears,
    Freed,
    OutcomesBlocked,
    Silenced,
    StopClaiming,
    Woken,
    Written,
)
from sa_jobqueue.runner.idling import (
    LONGEST_GAP,
    MOMENT,
    QUESTIONS,
    REFUSED_PAUSE,
    SHORTEST_FLAG,
    SOONEST,
    SPREAD,
    WAIT,
)
from sa_jobqueue.runner.pace import Lane

BROKEN = OperationalError("INSERT ...", {}, Exception("server closed the connection"))
POLL = 1.0


class Fleet:
    """One dispatcher and the time; what it asks of the database is answered at once, as `jobs` and `others` say."""

    def __init__(self, queues: dict[str, int] | None = None, **changes: Any) -> None:
        values: dict[str, Any] = {
            "lanes": {queue: Lane(limit) for queue, limit in (queues or {"default": 4}).items()},
            "poll_interval": POLL,
            "lease": 120.0,
            "renewal_interval": 40.0,
            "token": UUID(int=1),
        }
        self.state = Dispatch(**(values | changes))
        self.now = 100.0
        self.jobs: dict[str, int] = {}
        self.others = 0
        self.next_due: float | None = None
        self.done: list[tuple[float, Any]] = []

    def tell(self, *events: Any) -> None:
        """Hand over events and answer what it does, until it waits."""
        pending: Sequence[Any] = events
        while True:
            self.state, actions = step(self.state, pending, self.now)
            answers = []
            for action in actions:
                match action:
                    case WaitUntil(at):
                        self.wakes_at = at
                    case End():
                        return
                    case _:
                        self.done.append((round(self.now - 100.0, 6), action))
                        if (answer := self._answer(action)) is not None:
                            answers.append(answer)
            if not answers:
                return
            pending = answers

    def _answer(self, action: Any) -> Any:
        match action:
            case Claim(_, quotas):
                got = {queue: min(quota, self.jobs.get(queue, 0)) for queue, quota in quotas.items()}
                for queue, count in got.items():
                    self.jobs[queue] = self.jobs.get(queue, 0) - count
                return Claimed(quotas, got, 0, 0.0)
            case Announce(None):
                return Silenced()
            case Announce():
                return Announced(self.others, self.next_due, self.now, 0.5)
        return None

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        ends = self.now + seconds
        while self.wakes_at is not None and self.wakes_at <= ends:
            self.now = max(self.now, self.wakes_at)
            self.tell()
        self.now = ends

    def times(self, kind: type[Any]) -> list[float]:
        """When it has done that."""
        return [at for at, action in self.done if isinstance(action, kind)]

    def forget(self) -> None:
        self.done.clear()

    @property
    def flags(self) -> list[float | None]:
        return [action.seconds for _, action in self.done if isinstance(action, Announce)]


@pytest.fixture
def idle() -> Fleet:
    """One that has waited for long enough to have settled down."""
    fleet = Fleet()
    fleet.tell(Ears(True), Woken())
    fleet.run(5.0)
    fleet.forget()
    return fleet


def test_it_says_that_it_waits_and_looks_at_once() -> None:
    """Then sooner than usual, twice as long each time: a commit that was under way may have seen no flag."""
    fleet = Fleet()
    fleet.tell(Ears(True))
    assert [type(action) for _, action in fleet.done] == [Claim, Announce, Claim]
    assert fleet.flags == [WAIT * POLL]
    fleet.run(3.0)
    looks = fleet.times(Claim)
    assert looks == pytest.approx([0, 0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55])


def test_without_ears_nobody_is_told() -> None:
    """Then producers would pay for a notification that nobody hears."""
    fleet = Fleet()
    fleet.tell()
    fleet.run(5.0)
    fleet.tell(Woken())
    assert fleet.flags == []
    assert fleet.times(Claim) == [0, 1, 2, 3, 4, 5, 5]


def test_a_burst_never_waits() -> None:
    """It ends when nothing is due."""
    fleet = Fleet(burst=True)
    fleet.tell()
    assert fleet.flags == []


def test_the_flag_is_renewed_as_long_as_it_waits(idle: Fleet) -> None:
    """Before it ends, and no more often than it looks."""
    idle.run(20.0)
    assert len(idle.times(Announce)) == len(idle.times(Claim)) == 20
    assert idle.state.idle.stands(idle.now)


def test_a_notification_is_a_look_and_no_more(idle: Fleet) -> None:
    """The flag stood: what was committed since has told; nothing starts over."""
    idle.run(0.3)
    idle.tell(Woken())
    assert len(idle.times(Claim)) == 1
    idle.forget()
    idle.jobs = {"default": 1}
    idle.tell(Woken())
    idle.run(0.9)
    assert len(idle.times(Claim)) == 1


def test_notifications_for_others_are_looked_into_ever_more_slowly(idle: Fleet) -> None:
    """A thousand commits a second for another queue: some hundred looks, not a thousand; the first is at once."""
    for _ in range(1000):
        idle.tell(Woken())
        idle.run(0.001)
    looks = idle.times(Claim)
    assert looks[0] == pytest.approx(5.0)
    assert 1 / LONGEST_GAP * 0.9 < len(looks) < 1 / LONGEST_GAP * 1.3


def test_whoever_finds_jobs_looks_at_every_notification(idle: Fleet) -> None:
    """One look that finds something is enough for that; and seldom ones that find nothing put nothing off."""
    for _ in range(20):
        idle.tell(Woken())
        idle.run(0.001)
    idle.run(2 * LONGEST_GAP)
    for jobs, pause in ((1, 0.001), (0, 1.01 * LONGEST_GAP)):
        for _ in range(20):
            idle.forget()
            idle.jobs, came = {"default": jobs}, idle.now - 100.0
            idle.tell(Woken())
            assert idle.times(Claim)[:1] == pytest.approx([came])
            if jobs:
                idle.tell(Freed({"default": jobs}), Written(jobs))
            idle.run(pause)


def test_what_is_due_later_is_asked_now_and_then(idle: Fleet) -> None:
    """What was notified may be due in a moment; ten commits in a row are one question."""
    for _ in range(10):
        idle.run(0.01)
        idle.tell(Woken())
    assert len(idle.times(Announce)) <= 1
    idle.run(2.5 * POLL / QUESTIONS)
    idle.next_due = 0.3
    idle.tell(Woken())
    idle.run(0.001)
    asked = idle.times(Announce)[-1]
    idle.forget()
    idle.next_due = None
    idle.run(0.4)
    assert idle.times(Claim) == [pytest.approx(asked + 0.3)]


def test_without_a_free_slot_no_notification_makes_it_look(idle: Fleet) -> None:
    """And after a moment it takes the flag back, so that producers pay nothing while all runners are busy."""
    idle.jobs = {"default": 4}
    idle.tell(Woken())
    idle.forget()
    for _ in range(300):
        idle.tell(Woken())
    assert idle.done == []
    idle.run(MOMENT / 2)
    assert idle.flags == []
    idle.run(MOMENT)
    assert idle.flags == [None]
    idle.run(60.0)
    idle.tell(Woken())
    assert idle.flags == [None]
    assert idle.times(Claim) == []


def test_a_job_that_is_done_in_no_time_leaves_the_flag_alone() -> None:
    """A single slot that is taken and free again within a moment is a runner that waits."""
    fleet = Fleet({"default": 1})
    fleet.tell(Ears(True))
    fleet.run(5.0)
    fleet.forget()
    for _ in range(10):
        fleet.jobs = {"default": 1}
        fleet.tell(Woken())
        fleet.run(MOMENT / 2)
        fleet.tell(Freed({"default": 1}), Written(1))
        fleet.run(MOMENT / 2)
    assert None not in fleet.flags


def test_the_flag_does_not_come_and_go_with_every_job() -> None:
    """A single slot and jobs of a fifth of a second: each time nobody is there for a moment, but the flag stands."""
    fleet = Fleet({"default": 1})
    fleet.tell(Ears(True))
    for _ in range(100):
        fleet.jobs = {"default": 1}
        fleet.tell(Woken())
        fleet.run(2 * MOMENT)
        fleet.tell(Freed({"default": 1}), Written(1))
        fleet.run(MOMENT)
    changes = fleet.flags.count(None)
    assert changes <= 30 / SHORTEST_FLAG
    fleet.jobs = {"default": 1}
    fleet.tell(Woken())
    fleet.run(SHORTEST_FLAG + MOMENT)
    assert fleet.flags[-1] is None


def test_the_flag_comes_back_with_a_free_slot(idle: Fleet) -> None:
    """With a look before and after it."""
    idle.jobs = {"default": 4}
    idle.tell(Woken())
    idle.run(1.0)
    idle.forget()
    idle.tell(Freed({"default": 1}), Written(1))
    assert [type(action) for _, action in idle.done] == [Claim, Announce, Claim]


def test_who_can_not_write_outcomes_does_not_wait(idle: Fleet) -> None:
    """It would claim nothing of what it is told."""
    idle.tell(OutcomesBlocked(True))
    idle.run(1.0)
    assert idle.flags == [None]


def test_lost_ears_take_the_flag_back(idle: Fleet) -> None:
    """And the looks go on in the poll interval."""
    idle.tell(Ears(False))
    assert idle.flags == [None]
    idle.forget()
    idle.run(5.0)
    assert idle.flags == []
    assert len(idle.times(Claim)) == 5


def test_ears_that_were_lost_and_are_back_set_the_flag_anew(idle: Fleet) -> None:
    """A server that crashed has forgotten it, so nobody was told of what was committed since."""
    idle.tell(Ears(False), Ears(True), Woken())
    assert [type(action) for _, action in idle.done] == [Announce, Claim, Announce, Claim]
    assert idle.flags == [None, WAIT * POLL]


def test_many_that_wait_are_spread(idle: Fleet) -> None:
    """Later the more others there are, at most a quarter of the poll interval; alone at once."""
    for others, late in ((0, 0.0), (7, 7 * SPREAD / 2), (1000, POLL / 8)):
        idle.others = others
        idle.run(2.3)
        idle.forget()
        began = idle.now - 100.0
        idle.tell(Woken(0.5))
        idle.tell(Woken(1.0))  # a second one puts nothing off
        idle.run(POLL / 4)
        assert idle.times(Claim)[0] - began == pytest.approx(late, abs=1e-6)


def test_a_job_of_ours_is_looked_for_when_it_is_due(idle: Fleet) -> None:
    """A retry in 0.3 s does not wait for the next poll; one in an hour is found by it."""
    idle.tell(DueIn(3600.0))
    idle.tell(DueIn(0.3))
    began = idle.now - 100.0
    idle.run(0.4)
    assert pytest.approx(began + 0.3) in idle.times(Claim)
    assert idle.state.idle.due_at is None


def test_every_queue_looks_for_what_becomes_due() -> None:
    """Nobody knows whose it is."""
    fleet = Fleet({"a": 1, "b": 1})
    fleet.tell(Ears(True))
    fleet.run(5.0)
    fleet.forget()
    fleet.tell(DueIn(0.2))
    fleet.run(0.21)
    assert {"a": 1, "b": 1} in [action.quotas for _, action in fleet.done if isinstance(action, Claim)]


def test_a_crowd_that_becomes_due_is_no_busy_loop(idle: Fleet) -> None:
    """However soon the next one is due, looks for it keep a distance."""
    idle.next_due = 1e-6
    idle.tell(DueIn(0.0))
    idle.run(1.0)
    assert len(idle.times(Claim)) <= 1 / SOONEST + 2


def test_a_flag_that_fails_is_tried_again(idle: Fleet) -> None:
    """Looks go on meanwhile; what is not known is taken back first."""
    lost = replace(idle.state.idle, valid_until=None)
    idle.state = replace(idle.state, idle=lost)
    idle.tell(Failed(Announce(2.0), BROKEN, 0.5))
    assert idle.flags == []
    idle.run(0.6)
    assert idle.flags[:2] == [None, WAIT * POLL]


def test_a_flag_that_is_refused_is_left_for_a_minute() -> None:
    """It polls as one that never listened, and asks now and then whether the right has come."""
    fleet = Fleet()
    fleet.state, (claim,) = step(fleet.state, [Ears(True)], fleet.now)
    fleet.state, (announce,) = step(fleet.state, [Claimed(claim.quotas, {}, 0, 0.0)], fleet.now)
    assert isinstance(announce, Announce)
    fleet.tell(Silenced(refused=True))
    fleet.run(REFUSED_PAUSE - 1)
    assert fleet.flags == []
    assert fleet.times(Claim) == [float(second) for second in range(1, 60)]
    fleet.run(2.0)
    assert set(fleet.flags) == {WAIT * POLL}


def test_the_end_takes_the_flag_back(idle: Fleet) -> None:
    """Once, whatever becomes of it."""
    idle.tell(StopClaiming(until=idle.now + 5))
    assert idle.flags == [None]
    idle.tell(Failed(Announce(None), BROKEN, 0.1))
    assert idle.flags == [None]


def test_a_full_house_that_never_waited_says_nothing() -> None:
    """With a backlog the table is asked for jobs and for nothing else."""
    fleet = Fleet()
    fleet.jobs = {"default": 1000}
    fleet.tell(Ears(True))
    for _ in range(20):
        fleet.run(0.02)
        fleet.tell(Freed({"default": 4}), Written(4))
    assert fleet.flags == []
