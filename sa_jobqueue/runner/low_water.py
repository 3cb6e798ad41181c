"""Where the next claim of each queue begins: low-water marks, so that claims don't walk over what is done.

While some transaction holds an old snapshot, no vacuum may remove what jobs leave in the index of ready jobs when they are
claimed: 0.11 ms per thousand of them, for every claim and every idle look that begins with the first job. So a runner
remembers for each queue and priority how far it has come, and begins there.

What comes to stand behind a mark is not lost: jobs of transactions that were open for longer than GRACE, jobs whose
`run_at` somebody put into the past, those that another runner or a person gave back. Every so often each queue is
looked through from its first job on: a full look, whose answer also makes its marks anew, and so mends those that a step of
the server's clock has led astray. Marks are in memory alone; they speak of the server's time and never of this machine's.

Pure values. Nothing here knows SQL, threads, or when a queue has slots free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import MINYEAR, UTC, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sa_jobqueue.records import PRIORITIES, SMALLEST_ID, Mark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sa_jobqueue.records import ClaimAnswer, ClaimedJob, Marks

#: So long a transaction may take to commit its jobs without their waiting for a full look.
GRACE = timedelta(seconds=2)
#: Seconds from one full look at a queue to the next: as a rule, and at most. In between, so many times as long as the
#: last one took, so that they don't become what a runner does all day.
FULL_LOOK_INTERVAL, LONGEST_INTERVAL, SHARE = 1.0, 10.0, 20
#: Intervals vary by this share, so that runners started together don't look together.
JITTER = 0.1

_NO_MARKS: Marks = (None,) * PRIORITIES
_EMPTY: Mapping[str, Marks] = MappingProxyType({})


class Sight(NamedTuple):
    """What one claim saw: how far it came in each queue, whether it looked `through` them (see ClaimAnswer), how long.

    `reached` is the priority and the place of the last job that it took from a queue. `now` is the server's time before
    the claim; it is asked for at full looks alone, for it costs a statement.
    """

    through: bool = False
    reached: Mapping[str, tuple[int, Mark]] = MappingProxyType({})
    seconds: float = 0.0
    now: datetime | None = None


def sight(answer: ClaimAnswer, *, seconds: float, now: datetime | None) -> Sight:
    """Of an answer, whose jobs are in the order of claims."""
    last = {job.queue: job for job in answer.jobs}
    reached = {queue: (job.priority, Mark(_utc(job.run_at), job.id)) for queue, job in last.items()}
    return Sight(answer.through, reached, seconds, None if now is None else _utc(now))


@dataclass(frozen=True, slots=True)
class LowWater:
    """The marks of each queue, and when it is next looked through from its beginning, in seconds.

    `time` is a moment that the server's clock has passed: what it said last, or a due time that came later.
    """

    time: datetime | None = None
    marks: Mapping[str, Marks] = field(default_factory=lambda: _EMPTY)
    full_at: Mapping[str, float] = field(default_factory=dict)

    def behind(self, queues: Iterable[str], now: float) -> dict[str, Marks]:
        """The marks for a claim from these queues now; a queue whose full look is due has none."""
        return {
            queue: self.marks[queue]
            for queue in queues
            if queue in self.marks and now < self.full_at.get(queue, 0.0)
        }

    def looked(
        self,
        asked: Mapping[str, int],
        got: Mapping[str, int],
        behind: Mapping[str, Marks],
        sight: Sight,
        *,
        now: float,
        jitter: float,
    ) -> LowWater:
        """A claim has been answered that asked for so many, began at these marks and saw this."""
        interval = min(max(FULL_LOOK_INTERVAL, SHARE * sight.seconds), LONGEST_INTERVAL)
        full_at = {queue: now + interval * (1 - JITTER * jitter) for queue in asked if queue not in behind}
        marks, time = dict(self.marks), sight.now or self._later(sight)
        if time is not None:
            newest = Mark(time - GRACE, SMALLEST_ID)
            for queue, quota in asked.items():
                if sight.through and got.get(queue, 0) < quota:
                    marks[queue] = (newest,) * PRIORITIES
                elif queue in sight.reached:
                    before = self.marks.get(queue, _NO_MARKS)
                    marks[queue] = _raised(before, newest, *sight.reached[queue])
        return LowWater(time, marks, {**self.full_at, **full_at})

    def _later(self, sight: Sight) -> datetime | None:
        """The server's time has come at least as far as the due times that it has seen pass."""
        times = [mark.run_at for _, mark in sight.reached.values()]
        return None if self.time is None else max([self.time, *times])

    def returned(self, jobs: Iterable[ClaimedJob]) -> LowWater:
        """These come back to where they stood: nobody needs to wait for a full look to find them."""
        marks = dict(self.marks)
        for job in jobs:
            if job.queue in marks:
                of_queue = list(marks[job.queue])
                before, mark = Mark(_utc(job.run_at), max(job.id - 1, SMALLEST_ID)), of_queue[job.priority]
                if mark is not None and before < mark:
                    of_queue[job.priority] = _readable(before)
                marks[job.queue] = tuple(of_queue)
        return replace(self, marks=marks)

    def forgotten(self) -> LowWater:
        """Look through everything next."""
        return LowWater()


def _raised(marks: Marks, newest: Mark, priority: int, last: Mark) -> Marks:
    """After a claim whose quota was full with a job of this priority at this place.

    What is more urgent is empty, and of the less urgent nothing was seen. No mark is younger than `newest`: what is about
    to be committed stands there.
    """
    return (*(newest,) * priority, _readable(min(last, newest)), *marks[priority + 1 :])


def _readable(mark: Mark) -> Mark | None:
    """None for a time that may stand for an earlier one, which Python can't hold."""
    return None if mark.run_at.year == MINYEAR else mark


def _utc(time: datetime) -> datetime:
    """Times of one zone are compared by what its clocks show, which is no order when these are set back."""
    return time.astimezone(UTC)
