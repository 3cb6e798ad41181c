"""What must hold whenever something lands or is told: the invariants of the protocol, judged by the ledger's facts.

None of them asks a guard of the fake table whether it was right: each says what may never have happened. The names in
capitals stand in what is found, so that a test can say which of them has noticed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sa_jobqueue.events import JobSettled
from sa_jobqueue.states import JobStatus, Verb
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from uuid import UUID

    from sa_jobqueue.events import Event
    from tests.simulation.database import Row
    from tests.simulation.ledger import Facts, Key
    from tests.simulation.world import World

LOST, GONE = "lost", "gone"


class Checks:
    """Watches one schedule; the first thing that is wrong ends it.

    `undisturbed`: every process lives and is connected nearly all the time, so that nobody has to rescue what none began.
    `retention`: for so many seconds finished jobs are kept.
    """

    def __init__(self, world: World, *, undisturbed: bool, retention: float) -> None:
        self.world = world
        self.ledger = Ledger()
        self.found = world.wrong
        self.events: Counter[str] = Counter()
        self._undisturbed = undisturbed
        self._retention = retention
        self._claims: set[UUID] = set()

    def wrong(self, what: str) -> None:
        self.found.append(what)

    # What lands in the table.

    def claimed(self, row: Row, token: UUID, owner: Any) -> None:
        self._within_budget(row)
        self._a_token_is_used_once(row, token)
        told, row.told = row.told and row.run_at <= row.visible_at, False
        self.ledger.waits.append((self.world.now - max(row.run_at, row.visible_at), row.id, told))
        self.ledger.claim((row.id, token), owner)

    def claim_lands(self, token: UUID) -> None:
        """TOKEN-REUSED: two claims under one token could not be told apart by any fence."""
        if token in self._claims:
            self.wrong("TOKEN-REUSED: a second claim lands under one token")
        self._claims.add(token)

    def lands(self, row: Row, verb: Verb, token: Any, *, by_fence: bool = False) -> None:
        """A claim ends by this verb."""
        key = (row.id, token)
        facts = self.ledger.claims.get(key)
        if facts is None or row.status is not JobStatus.RUNNING or row.token != token:
            self.wrong(f"UNFENCED: {verb} of job {row.id} lands, and it is {row.status} under another token")
            return
        self._one_outcome(key, facts, verb)
        self._nothing_lands_late(key, facts, verb)
        self._what_began_is_not_given_back(key, facts, verb)
        facts.landed = verb
        if verb is Verb.COMPLETE:
            self._completed_once(row.id)
            if not by_fence:
                self._done_with_its_effects(key, facts)
                self._completed_in_time(row)
        self.world.note(f"{verb} of job {row.id} lands")

    def rests(self, row: Row) -> None:
        """A job has come to a status in which nobody runs it."""
        if row.id in self.ledger.promised:
            self._a_promised_cancellation_comes(row)
            if row.status is not JobStatus.READY:
                self.ledger.promised.discard(row.id)
        elif row.status is JobStatus.CANCELLED and not row.expired:
            self._cancelled_on_request(row)

    def fenced(self, row: Row, key: Key) -> None:
        self._completed_in_time(row)
        self.world.note(f"the fence of job {key[0]} lands")

    def has_effects(self, key: Key) -> None:
        self.ledger.claims[key].effects += 1
        self.ledger.effects[key[0]] += 1

    def rescued(self, row: Row, token: Any) -> None:
        self.ledger.rescued.append((self.world.now, row.leased_by or ""))
        self._no_attempt_for_what_nobody_began(row, self.ledger.claims[row.id, token])

    def holder_comes(self, row: Row) -> None:
        """For schedules in which nothing fails: its lease may have run out."""
        if row.status is JobStatus.RUNNING and row.lease_until <= self.world.now:
            self.ledger.lapsed.append((self.world.now, row.id))

    def reports(self, row: Row, token: UUID) -> None:
        """FOREIGN-PROGRESS: nobody writes progress into a job that another run holds, or none."""
        if row.token != token:
            self.wrong(f"FOREIGN-PROGRESS: job {row.id} is {row.status} under another token")

    # What people do.

    def cancelled_by_a_person(self, row: Row) -> None:
        self.ledger.promised.add(row.id)

    def cancellation_promised(self, row: Row) -> None:
        self.ledger.promised.add(row.id)

    def nothing_to_cancel(self, row: Row | None) -> None:
        """CANCEL-LOST: whoever cancels a job that lives is not told that there was nothing to cancel."""
        if row is not None and row.status in (JobStatus.READY, JobStatus.RUNNING):
            self.wrong(f"CANCEL-LOST: job {row.id} is {row.status}, and there was nothing to cancel")

    def redriven(self, row: Row) -> None:
        self.ledger.redriven(row.id)

    def pruned(self, row: Row) -> None:
        """PRUNED-EARLY: a job is kept until its retention is over."""
        if row.finished_at + self._retention >= self.world.now:
            self.wrong(f"PRUNED-EARLY: job {row.id} finished at {row.finished_at}")

    # What runners do and tell.

    def begins(self, key: Key, *, lost: bool) -> None:
        """BEGUN-LOST, BEGUN-TWICE: a handler begins once under a claim, and never when the claim is known to be lost."""
        facts = self.ledger.claims[key]
        if lost:
            self.wrong(f"BEGUN-LOST: job {key[0]} begins although its lease is known to be lost")
        if facts.began:
            self.wrong(f"BEGUN-TWICE: job {key[0]} begins twice under one claim")
        facts.began = True

    def reported(self, key: Key, what: str, row: Row | None) -> None:
        """A runner takes this for what became of the claim: a verb that has landed, lost, or gone."""
        facts = self.ledger.claims[key]
        self._done_is_done(key, facts, what)
        self._a_completion_is_known(key, facts, what)
        self._lost_is_lost(key, facts, what, row)
        self._told_is_what_landed(key, facts, what)
        facts.reported = facts.reported or what

    def on_event(self, event: Event) -> None:
        self.events[type(event).__name__] += 1
        if self.world.history is not None:
            self.world.note(f"event: {event}")
        if isinstance(event, JobSettled) and event.verb is Verb.COMPLETE:
            self.ledger.reported_done[event.job_id] += 1
            if not any(facts.landed is Verb.COMPLETE for facts in self.ledger.of_job[event.job_id]):
                self.wrong(f"FALSE-DONE: job {event.job_id} is told done, and no completion has landed")

    # The invariants.

    def _within_budget(self, row: Row) -> None:
        """BUDGET: no more attempts begin than the job may have."""
        if not 0 < row.attempts - row.returned <= row.max_attempts:
            self.wrong(
                f"BUDGET: job {row.id} counts {row.attempts - row.returned} of {row.max_attempts} attempts"
            )

    def _a_token_is_used_once(self, row: Row, token: UUID) -> None:
        """TOKEN-REUSED: a job is claimed once under a token, or an old write of it would pass the fence again."""
        if (row.id, token) in self.ledger.claims:
            self.wrong(f"TOKEN-REUSED: job {row.id} is claimed again under the same token")

    def _one_outcome(self, key: Key, facts: Facts, verb: Verb) -> None:
        """TWO-OUTCOMES: a claim ends once, by whatever verb."""
        if facts.landed is not None:
            self.wrong(f"TWO-OUTCOMES: {verb} of job {key[0]} lands after {facts.landed} of the same claim")

    def _nothing_lands_late(self, key: Key, facts: Facts, verb: Verb) -> None:
        """LATE-LAND: once its runner has told how a claim ended, nothing of it lands any more."""
        if facts.reported is not None and facts.reported != verb:
            self.wrong(f"LATE-LAND: {verb} of job {key[0]} lands after its runner has told {facts.reported}")

    def _what_began_is_not_given_back(self, key: Key, facts: Facts, verb: Verb) -> None:
        """GIVEN-BACK: an attempt whose handler began is not free of charge."""
        if verb is Verb.RELEASE and facts.began:
            self.wrong(f"GIVEN-BACK: job {key[0]} is released, and its handler has begun")

    def _completed_once(self, job_id: int) -> None:
        """TWO-COMPLETIONS: a job is done once, unless a person sends it back."""
        self.ledger.completions[job_id] += 1
        if self.ledger.completions[job_id] > 1:
            self.wrong(f"TWO-COMPLETIONS: job {job_id} is completed twice")

    def _done_with_its_effects(self, key: Key, facts: Facts) -> None:
        """DONE-WITHOUT-EFFECT: what a handler completes in its own transaction is done by that transaction or not at all."""
        if facts.block:
            self.wrong(f"DONE-WITHOUT-EFFECT: job {key[0]} is completed past its handler's own transaction")

    def _completed_in_time(self, row: Row) -> None:
        """COMPLETED-LATE: nobody completes under a lease that is past, for somebody may be about to take the job."""
        if row.lease_until <= self.world.now:
            self.wrong(f"COMPLETED-LATE: job {row.id} is completed, and its lease ended at {row.lease_until}")

    def _a_promised_cancellation_comes(self, row: Row) -> None:
        """CANCEL-LOST: a job whose cancellation was promised ends cancelled or done, and is never run again."""
        if row.status not in (JobStatus.CANCELLED, JobStatus.DONE):
            self.wrong(f"CANCEL-LOST: job {row.id} was to be cancelled and is {row.status}")

    def _cancelled_on_request(self, row: Row) -> None:
        """STALE-CANCEL: no job is cancelled for a request that nobody made, or that a redrive has taken back."""
        self.wrong(f"STALE-CANCEL: job {row.id} was cancelled without a request")

    def _no_attempt_for_what_nobody_began(self, row: Row, facts: Facts) -> None:
        """CHARGED-UNBEGUN: a claim whose answer was lost is given back by its own runner before anybody rescues it."""
        if self._undisturbed and not facts.began:
            self.wrong(f"CHARGED-UNBEGUN: job {row.id} was never begun, and its attempt is charged")

    def _done_is_done(self, key: Key, facts: Facts, what: str) -> None:
        """FALSE-DONE: what is told done is done."""
        if what == Verb.COMPLETE and facts.landed is not Verb.COMPLETE:
            self.wrong(f"FALSE-DONE: job {key[0]} is told done, {facts.landed} has landed")

    def _a_completion_is_known(self, key: Key, facts: Facts, what: str) -> None:
        """COMPLETED-REPORTED-X: a completion that has landed is told as one; without its transaction perhaps as gone."""
        known = (Verb.COMPLETE,) if facts.xid_known else (Verb.COMPLETE, GONE)
        if facts.landed is Verb.COMPLETE and what not in known:
            self.wrong(f"COMPLETED-REPORTED-{what.upper()}: job {key[0]} is done")

    def _lost_is_lost(self, key: Key, facts: Facts, what: str, row: Row | None) -> None:
        """FALSE-LOST: nothing is told lost that its runner still holds, or that the row shows to have landed."""
        if what in (LOST, GONE) and row is not None and row.token == key[1]:
            self.wrong(f"FALSE-LOST: job {key[0]} is told {what}, and the claim still stands")
        own = facts.landed not in (None, Verb.RESCUE)
        if what == LOST and own and row is not None and row.settled_token == key[1]:
            self.wrong(f"FALSE-LOST: job {key[0]} is told lost, and {facts.landed} has landed")

    def _told_is_what_landed(self, key: Key, facts: Facts, what: str) -> None:
        """FALSE-X: the verb that is told is the one that has landed."""
        if what not in (LOST, GONE, Verb.COMPLETE) and what != facts.landed:
            self.wrong(f"FALSE-{what.upper()}: told of job {key[0]}, {facts.landed} has landed")
