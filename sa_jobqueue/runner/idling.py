"""What a dispatcher does while it has free slots and finds no jobs: it says that it waits, so that commits wake it.

What says so in the database is the flag. It costs producers something at every commit for as long as it stands, so it
is set when a look came back short, renewed with later looks, and taken back once no slot has been free for a moment. A
commit that was under way when the flag was set may have seen none: so the first looks after it come soon. While it
stands nothing new can be missed, and a look that was brought about by a notification starts nothing over. Pure numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sa_jobqueue.runner.pace import SECOND_LOOK

#: The flag is set for so many poll intervals; the database may leave one alone that has half of that left, so it is
#: certain to stand for VALID. It is renewed by a look when less than RENEW is left.
WAIT, VALID, RENEW = 2.5, 1.25, 1.0
#: The flag is taken back when no queue has wanted a job for so many seconds, and so many after it was set at the
#: earliest: while an old snapshot keeps vacuum from its work, every change of it makes each INSERT of jobs slower.
MOMENT, SHORTEST_FLAG = 0.1, 2.0
#: Runners that wait for the same job come so many seconds apart from each other, in the mean; the last of them no later
#: than this share of the poll interval.
SPREAD, LONGEST_SPREAD = 0.001, 0.25
#: When the next job is due is asked after a notification, but no more than so many times per poll interval.
QUESTIONS = 5
#: Looks that notifications bring about and that find nothing follow one another ever more slowly, by so many seconds
#: at first and at most: they were for another queue, or somebody else was quicker.
FIRST_GAP, LONGEST_GAP = 0.001, 0.01
#: Looks at what becomes due are at least so many seconds apart.
SOONEST = 0.01
#: A flag that the database refuses is tried again after so many seconds.
REFUSED_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Idling:
    """Times in seconds. `ears`: what is notified is heard. `valid_until`: the flag's end, None when it isn't set.
    `set_at`: when it was set, and not only renewed.

    `pause` is the time to the next look after one that came back short. So many `others` wait as well. `due_at` is when
    the next job becomes due as far as is known, `ask_at` when to ask for that again, with the flag, and `asked_at` when
    that was last. `doubtful`: what became of the flag isn't known. Nothing is said about it before `not_before`.
    `hinted`: a notification brings about the next look. Such a look comes at least `gap` after the last one, which was
    at `looked_at`.
    """

    ears: bool = False
    valid_until: float | None = None
    set_at: float = float("-inf")
    pause: float = 0.0
    others: int = 0
    due_at: float | None = None
    ask_at: float | None = None
    asked_at: float = float("-inf")
    unwanted_since: float | None = None
    doubtful: bool = False
    not_before: float = 0.0
    hinted: bool = False
    gap: float = 0.0
    looked_at: float = float("-inf")

    def hears(self, ears: bool) -> Idling:
        """With the ears goes what was known of the flag: a server that crashed has lost it."""
        known = ears or self.valid_until is None
        return replace(self, ears=ears) if known else replace(self.failed(self.not_before), ears=ears)

    def stands(self, now: float) -> bool:
        """Whoever inserts a job now knows that we wait."""
        return self.valid_until is not None and now < self.valid_until

    def spread(self, jitter: float, poll: float) -> float:
        """How long to let others go first: not at all when there are none."""
        return jitter * min(self.others * SPREAD, poll * LONGEST_SPREAD)

    def announced(
        self, *, others: int, next_due: float | None, sent_at: float, now: float, jitter: float, poll: float
    ) -> Idling:
        """The flag is set or renewed, and what the database knows is known here."""
        stood = self.stands(sent_at)
        idle = replace(
            self,
            valid_until=sent_at + VALID * poll,
            set_at=self.set_at if stood else now,
            pause=self.pause if stood else 0.0,
            others=others,
            ask_at=None,
            asked_at=now,
            doubtful=False,
        )
        if next_due is None:
            return idle
        return idle.due_in(next_due + idle.spread(jitter, poll), now, poll=poll)

    def silenced(self) -> Idling:
        """The flag is taken back."""
        return replace(self, valid_until=None, ask_at=None, doubtful=False)

    def failed(self, retry_at: float) -> Idling:
        """What was said about the flag may have got there or not."""
        return replace(self, valid_until=None, ask_at=None, doubtful=True, not_before=retry_at)

    def refused(self, now: float) -> Idling:
        """There is no flag for us."""
        return replace(self.silenced(), not_before=now + REFUSED_PAUSE)

    def due_in(self, seconds: float, now: float, *, poll: float) -> Idling:
        """A job becomes due; what is far away is found by the looks."""
        if seconds > WAIT * poll:
            return self
        due_at = now + max(seconds, SOONEST)
        return replace(self, due_at=due_at if self.due_at is None else min(self.due_at, due_at))

    def woken(self, *, poll: float) -> Idling:
        """Something was committed; it may be due later."""
        ask_at = self.asked_at + poll / QUESTIONS if self.ask_at is None else self.ask_at
        return replace(self, ask_at=ask_at, hinted=True)

    def looks_at(self, now: float, *, jitter: float, poll: float) -> float:
        """When to look for what was committed now."""
        return max(now + self.spread(jitter, poll), self.looked_at + self.gap)

    def answered(self, now: float, *, found: bool) -> Idling:
        """A look has found something, or nothing at all."""
        gap = min(max(self.gap * 2, FIRST_GAP), LONGEST_GAP) if self.hinted else self.gap
        return replace(self, hinted=False, gap=0.0 if found else gap, looked_at=now)

    def looked(self, now: float, *, poll: float) -> Idling:
        """A look came back short: the next one comes later than it did, unless a time is known."""
        idle = replace(self, pause=min(max(self.pause * 2, SECOND_LOOK), poll))
        if self.valid_until is not None and self.valid_until - now < RENEW * poll:
            idle = replace(idle, ask_at=now)
        if self.due_at is not None and now >= self.due_at:
            idle = replace(idle, due_at=None, ask_at=now)
        return idle

    def unwanted(self, now: float | None) -> Idling:
        """No queue wants a job, now; None when one does."""
        if (now is None) == (self.unwanted_since is None):
            return self
        return replace(self, unwanted_since=now)

    def announces_at(self, now: float) -> float | None:
        """When a runner that waits for jobs sets or renews the flag; None for not at all."""
        if not self.ears:
            return None
        if not self.stands(now):
            return self.not_before
        return None if self.ask_at is None else max(self.not_before, self.ask_at)

    def silences_at(self) -> float | None:
        """When to take the flag back, None when there is nothing to take back or no reason to."""
        if self.doubtful:
            return self.not_before
        # Also one of which it is not certain that it stands: the database may keep it for longer.
        if self.valid_until is not None and self.unwanted_since is not None:
            return max(self.not_before, self.unwanted_since + MOMENT, self.set_at + SHORTEST_FLAG)
        return None
