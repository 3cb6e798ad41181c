"""What must hold of what the loops of a runner decide, and of how they keep at it: between step and hands of each loop."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import OperationalError

from sa_jobqueue.loop import LONGEST_BACKOFF
from sa_jobqueue.records import DEFAULT_PRIORITY, Landing
from sa_jobqueue.runner import dispatch, leases, settle
from sa_jobqueue.runner.dispatch_messages import Claim, GivenBack, OutcomesBlocked
from sa_jobqueue.runner.listening import CHECK_INTERVAL
from sa_jobqueue.runner.pace import CLAIM_AHEAD_LIMIT
from sa_jobqueue.states import JobStatus, Verb
from tests.simulation.checks import GONE, LOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_jobqueue.loop import Loop, Step
    from sa_jobqueue.runner.book import Book
    from tests.simulation.checks import Checks
    from tests.simulation.database import Database
    from tests.simulation.ledger import Key
    from tests.simulation.store import Site

_OVER = {Landing.LOST: LOST, Landing.GONE: GONE}


class Hands:
    """The watch over the loops of one runner."""

    def __init__(self, site: Site, checks: Checks, database: Database) -> None:
        self._site = site
        self._checks = checks
        self._database = database
        self.loops: dict[str, Loop[Any]] = {}
        self.book: Book
        #: When each loop has done something last.
        self.acted: dict[str, float] = {}
        self._blocked = False
        self._given_back: defaultdict[str, set[tuple[float, int]]] = defaultdict(set)
        self._lost: set[Key] = set()

    def watched_step(self, name: str, step: Step[Any]) -> Step[Any]:
        def watched(state: Any, events: Sequence[Any], now: float) -> Any:
            for event in events:
                self._hears(event)
            state, actions = step(state, events, now)
            if name == "dispatch":
                self._lanes_are_counted(state)
            return state, actions

        return watched

    def watched_perform(self, name: str, perform: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def watched(action: Any) -> Any:
            self._before(action)
            self.acted[name] = self._checks.world.now
            try:
                answer = perform(action)
            except OperationalError:
                raise
            except (
                Exception
            ) as error:  # of a fake that lags behind: the loop would go on trying, and nobody would know
                self._checks.wrong(f"the hands of {name} died at {action}: {error!r}")
                raise
            self.acted[name] = self._checks.world.now
            if isinstance(answer, leases.RenewalDone):
                self._what_is_lost_is_not_renewed_again(answer)
            return answer

        return watched

    def keep_at_it(self) -> None:
        """SILENT: with the database well, no loop is silent for longer than its rhythm and the longest pause after a failure."""
        now = self._checks.world.now
        rhythm = {
            "dispatch": self._site.settings.poll_interval.total_seconds(),
            "leases": self._site.settings.renewal_interval.total_seconds(),
            "maintenance": self._site.settings.rescue_interval.total_seconds(),
        }
        if not self._database.pooled:
            rhythm["listen"] = CHECK_INTERVAL
        for name, seconds in rhythm.items():
            loop = self.loops.get(name)
            if loop is None or (name == "dispatch" and not self._wants()):
                continue
            if not loop._thread.is_alive():
                self._checks.wrong(f"SILENT: the loop {name} of {self._site.name} has ended")
            if now - self.acted.get(name, 0.0) > seconds + LONGEST_BACKOFF:
                self._checks.wrong(
                    f"SILENT: the loop {name} of {self._site.name} since {self.acted.get(name)}"
                )

    def _wants(self) -> bool:
        """A dispatcher all of whose slots are taken has nothing to ask for."""
        state = self.loops["dispatch"]._state
        return not state.blocked and any(lane.held < lane.limit for lane in state.lanes.values())

    def _hears(self, event: Any) -> None:
        match event:
            case OutcomesBlocked(blocked):
                self._blocked = blocked
            case GivenBack(jobs):
                for job in jobs:
                    if (row := self._database.rows.get(job.id)) is not None:
                        self._given_back[job.queue].add((row.run_at, row.id))

    def _before(self, action: Any) -> None:
        match action:
            case Claim():
                self._claims_within_its_slots(action)
                self._does_not_hide_what_it_gave_back(action)
            case leases.Renew():
                self._holds_what_it_runs()
            case leases.Judge(answers):
                for renewed in answers:
                    key = (renewed.id, renewed.token)
                    if renewed.landing in _OVER and self.book.judge(key) is not None:
                        self._checks.reported(
                            key, _OVER[renewed.landing], self._database.rows.get(renewed.id)
                        )
            case settle.Conclude(batch, answers):
                for finished, answer in zip(batch, answers, strict=True):
                    verb = Verb.COMPLETE if answer.completed else finished.settlement.verb
                    key = finished.execution.key
                    self._checks.reported(
                        key, _OVER.get(answer.landing, verb), self._database.rows.get(key[0])
                    )

    def _claims_within_its_slots(self, claim: Claim) -> None:
        """BLOCKED, SLOTS: nothing is claimed while outcomes can't be written, and no more than slots can take."""
        if self._blocked:
            self._checks.wrong(f"BLOCKED: {self._site.name} claims while outcomes are blocked")
        lanes = self.loops["dispatch"]._state.lanes
        for queue, quota in claim.quotas.items():
            lane = lanes[queue]
            if lane.held + quota > lane.limit + CLAIM_AHEAD_LIMIT or quota < 1:
                self._checks.wrong(
                    f"SLOTS: {self._site.name} asks {queue} for {quota} and holds {lane.held} of {lane.limit}"
                )

    def _does_not_hide_what_it_gave_back(self, claim: Claim) -> None:
        """HIDDEN: a job that a runner has given back is not behind the mark where its next claim begins."""
        for queue in claim.quotas:
            given_back = self._given_back.pop(queue, set())
            mark = claim.behind[queue][DEFAULT_PRIORITY] if queue in claim.behind else None
            if mark is None:
                continue
            for place in given_back:
                row = self._database.rows.get(place[1])
                hidden = place <= (self._site.seconds(mark.run_at), mark.id)
                if row is not None and row.status is JobStatus.READY and row.run_at == place[0] and hidden:
                    self._checks.wrong(f"HIDDEN: {self._site.name} looks behind job {row.id}")

    def _holds_what_it_runs(self) -> None:
        """UNHELD: what a handler here has begun is held and renewed until it has landed or is known to be lost."""
        if self.book._closed:
            return
        for row in self._database.rows.values():
            if (
                row.token is None
                or (facts := self._checks.ledger.claims[row.id, row.token]).owner is not self._site
            ):
                continue
            if facts.began and facts.reported is None and (row.id, row.token) not in self.book._held:
                self._checks.wrong(f"UNHELD: {self._site.name} runs job {row.id} and does not hold it")

    def _lanes_are_counted(self, state: dispatch.Dispatch) -> None:
        """SLOTS: nobody holds less than nothing."""
        for queue, lane in state.lanes.items():
            if lane.held < 0:
                self._checks.wrong(f"SLOTS: {self._site.name}: {queue} holds {lane.held}")

    def _what_is_lost_is_not_renewed_again(self, done: leases.RenewalDone) -> None:
        """RENEWED-LOST: what a renewal found lost is not held by the time of the next, unless the settler decides it."""
        over = {(one.id, one.token) for one in done.answers if one.landing in _OVER}
        held = {key for key in over if self.book.judge(key) is not None}
        if again := held & self._lost:
            self._checks.wrong(f"RENEWED-LOST: {self._site.name} renews {sorted(job for job, _ in again)}")
        self._lost |= held
