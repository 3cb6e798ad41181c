"""How much one queue wants, and when it is worth another look: the lane.

A lane claims for its free slots, and ahead of them only as much as its handlers will start within a blink at the pace
seen lately: short jobs are claimed in large batches, long ones never wait here while another runner is idle, and large
payloads never fill the memory. Each lane looks in its own rhythm, so that a queue that is empty never slows down one
that is full. Pure numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: A lane claims ahead what it starts in this many seconds, up to a bound that keeps one runner's death cheap.
CLAIM_AHEAD_SECONDS, CLAIM_AHEAD_LIMIT = 0.1, 1000
#: And never more than this many times what has finished lately beyond one job for each slot: it takes some jobs to learn
#: that they are short, and then few claims to get to large ones.
CLAIM_AHEAD_GROWTH = 4
#: And no more than so many characters of payloads, by the size of those that were claimed lately.
CLAIM_AHEAD_SIZE = 4 * 2**20
#: The time constant, in seconds, of what a lane remembers.
PACE_MEMORY = 0.5
#: Jobs that were claimed ahead are given back when no handler of their queue has finished for so many seconds.
CLAIM_AHEAD_PATIENCE = 1.0
#: A claim that came back short is followed by one more look this soon, in seconds, then by the poll interval.
SECOND_LOOK = 0.05
#: Poll intervals vary by this share, so that runners started together don't stay together.
POLL_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Lane:
    """One queue: `held` jobs are claimed and not finished.

    `recent` handlers have finished in `span` seconds, both fading with time. Time in which nothing was held is not in the
    span, for it says nothing about how long jobs take; `paced_at` is the time up to which both are told. `size` is that of
    a payload in the last claims: their mean, halved by each claim of smaller ones. `least_size` is what it is taken for at
    least, where a handler allows payloads so large that even one claim of them would be too much.
    """

    limit: int
    held: int = 0
    recent: float = 0.0
    span: float = 0.0
    paced_at: float = 0.0
    size: float = 0.0
    least_size: int = 1
    not_before: float = 0.0
    second_look: bool = True

    def finished(self, count: int, now: float) -> Lane:
        """So many handlers have ended."""
        recent, span = self._lately(max(now, self.paced_at + 1e-3))
        return replace(self, held=self.held - count, recent=recent + count, span=span, paced_at=now)

    def _lately(self, now: float) -> tuple[float, float]:
        kept = _kept(now - self.paced_at)
        return self.recent * kept, self.span * kept + (1 - kept) * PACE_MEMORY

    def unstarted(self, count: int) -> Lane:
        """So many left without having begun: slots are free again, but nothing was learnt about the pace."""
        return replace(self, held=self.held - count)

    def looked(
        self, *, asked: int, got: int, now: float, poll: float, woken: bool = False, size: int = 0
    ) -> Lane:
        """A claim asked for so many and got so many; `poll` is how long to wait when there is no more.

        `woken`: what is committed from now on is told. `size` is that of all payloads that it got.
        """
        mean = max(size / got, self.size / 2) if got else self.size
        lane = replace(self, held=self.held + got, size=mean)
        if not self.held:
            kept = _kept(now - self.paced_at)
            lane = replace(lane, recent=self.recent * kept, span=self.span * kept, paced_at=now)
        if got >= asked:
            return replace(lane, not_before=0.0, second_look=True)
        if got and self.second_look and not woken:
            # The queue ran dry under our hands: producers are at work, so look once more before settling down.
            return replace(lane, not_before=now + min(SECOND_LOOK, poll), second_look=False)
        return replace(lane, not_before=now + poll, second_look=True)

    def sooner(self, at: float) -> Lane:
        """There may be work then."""
        return replace(self, not_before=at) if at < self.not_before else self

    def wanted(self, now: float) -> int:
        """How many to claim now; 0 while enough is waiting, so that batches stay large."""
        recent, span = self._lately(now)
        pace = recent / span if recent else 0.0
        learnt = max(recent - self.limit, 0.0) * CLAIM_AHEAD_GROWTH
        room_ahead = CLAIM_AHEAD_SIZE / max(self.size, self.least_size)
        ahead = int(min(pace * CLAIM_AHEAD_SECONDS, learnt, CLAIM_AHEAD_LIMIT, room_ahead))
        room = self.limit + ahead - self.held
        # Not quite half: `slots` tells of half a line while the slots hold some more.
        enough = (self.limit + ahead) * 2 // 5
        return room if room > 0 and (self.held <= self.limit or room >= enough) else 0

    @property
    def stalls_at(self) -> float | None:
        """When waiting jobs become somebody else's chance: None while none waits here."""
        return self.paced_at + CLAIM_AHEAD_PATIENCE if self.held > self.limit else None

    def stalled(self, now: float) -> Lane:
        """What waits is being given back: the pace counts from now."""
        return replace(self, paced_at=now, recent=0.0, span=0.0)


def _kept(elapsed: float) -> float:
    """The share of what was learnt that is still worth something after so many seconds."""
    return math.exp(-max(elapsed, 0.0) / PACE_MEMORY)
