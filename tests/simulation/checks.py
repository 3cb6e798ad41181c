"""What must hold at every moment, and what must be true when the faults have stopped and time has passed."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from sa_jobqueue.events import JobSettled
from sa_jobqueue.records import Landing
from sa_jobqueue.runner import dispatch, leases, settle
from sa_jobqueue.runner.dispatch_messages import Claim, OutcomesBlocked
from sa_jobqueue.runner.pace import CLAIM_AHEAD_LIMIT
from sa_jobqueue.states import Verb
from tests.simulation.database import CANCELLED, DEAD, DONE, Database, Key

if TYPE_CHECKING:
    from sa_jobqueue.events import Event
    from sa_jobqueue.runner.executors.protocol import Execution
    from tests.simulation.runner import SimulatedLoop, SimulatedRunner

_OVER = (Landing.LOST, Landing.GONE)


class Checks:
    """Watches all runners of one schedule; the first thing that is wrong ends it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.found: list[str] = database.wrong
        self.begun: Counter[int] = Counter()
        self.events: Counter[str] = Counter()
        self.reported: Counter[int] = Counter()
        self._begun_keys: set[Key] = set()
        self._blocked: dict[int, bool] = defaultdict(bool)
        self._lost: dict[int, set[Key]] = defaultdict(set)

    def wrong(self, what: str) -> None:
        self.found.append(what)

    def on_event(self, event: Event) -> None:
        self.events[type(event).__name__] += 1
        if isinstance(event, JobSettled) and event.verb is Verb.COMPLETE:
            self.reported[event.job_id] += 1
            if not self.database.completions[event.job_id]:
                self.wrong(f"job {event.job_id} is reported as done, and nothing has landed")

    def begins(self, execution: Execution) -> None:
        """A handler begins."""
        ctx, key = execution.context, execution.key
        self.begun[ctx.id] += 1
        if ctx.lost:
            self.wrong(f"job {ctx.id} begins although its lease is known to be lost")
        if key in self._begun_keys:
            self.wrong(f"job {ctx.id} begins twice under one claim")
        self._begun_keys.add(key)

    def after_gather(self, loop: SimulatedLoop, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, OutcomesBlocked):
                self._blocked[id(loop)] = event.blocked
        if isinstance(loop.state, dispatch.Dispatch):
            for queue, lane in loop.state.lanes.items():
                if lane.held < 0:
                    self.wrong(f"{loop.name}: {queue} holds {lane.held}")

    def before_action(self, loop: SimulatedLoop, action: Any) -> None:
        match action:
            case Claim(quotas=quotas):
                if self._blocked[id(loop)]:
                    self.wrong(f"{loop.name} claims while outcomes are blocked")
                for queue, quota in quotas.items():
                    lane = loop.state.lanes[queue]
                    if lane.held + quota > lane.limit + CLAIM_AHEAD_LIMIT or quota < 1:
                        self.wrong(
                            f"{loop.name} asks {queue} for {quota} and holds {lane.held} of {lane.limit}"
                        )
            case leases.Judge(answers):
                for answer in answers:
                    key = (answer.id, answer.token)
                    ended = self.database.landed.get(key) is Verb.COMPLETE and answer.landing in _OVER
                    if ended and loop.book.judge(key) is not None:
                        self.wrong(f"job {answer.id} is taken for lost, and its own run has completed it")
            case settle.Conclude(batch, answers):
                if not loop.group.stopping:
                    self._check_reports(batch, answers)

    def after_action(self, loop: SimulatedLoop, answer: Any) -> None:
        """What a renewal found lost is not held any more by the time of the next one, unless the settler decides it."""
        if isinstance(answer, leases.RenewalDone):
            over = {(one.id, one.token) for one in answer.answers if one.landing in _OVER}
            held = {key for key in over if loop.book.judge(key) is not None}
            if again := held & self._lost[id(loop)]:
                self.wrong(f"{loop.name} renews what it knows to be lost: {again}")
            self._lost[id(loop)] |= held

    def at_the_end(self, runners: list[SimulatedRunner]) -> None:
        """All is quiet: every job came to rest with the right attempts, and nothing is left anywhere."""
        for row in self.database.rows.values():
            if row.status not in (DONE, DEAD, CANCELLED):
                self.wrong(f"job {row.id} never ends: {row}")
            if row.status is CANCELLED and not row.cancel_requested:
                self.wrong(f"job {row.id} was cancelled without a request")
            if self.database.completions[row.id] != (row.status is DONE):
                self.wrong(
                    f"job {row.id} is {row.status} with {self.database.completions[row.id]} completions"
                )
            by_block = row.status is DONE and (row.id, row.settled_token) in self.database.blocks
            if self.database.effects[row.id] != by_block:
                self.wrong(f"job {row.id} has its effects {self.database.effects[row.id]} times: {row}")
            counted = row.attempts - row.returned
            if not 0 <= counted <= row.max_attempts:
                self.wrong(f"job {row.id} counts {counted} of {row.max_attempts} attempts")
            if self.begun[row.id] - self.database.snoozes[row.id] > counted:
                self.wrong(f"job {row.id} began {self.begun[row.id]} times and counts {counted} attempts")
        for runner in runners:
            if runner.stopped and not runner.gone:
                self.wrong(f"{runner.name} was stopped and never ends")
            elif not runner.gone:
                self._check_rest(runner)

    def attempts_are_only_spent_on_runs(self) -> None:
        """For schedules in which every runner lives and is connected most of the time.

        A lost claim is given back for free while fewer starts than `max_attempts` have been, whatever gave them back.
        """
        for row in self.database.rows.values():
            counted = row.attempts - row.returned
            began = self.begun[row.id] - self.database.snoozes[row.id]
            if counted != began and row.returned < row.max_attempts:
                self.wrong(f"job {row.id} counts {counted} attempts and ran {began} times")

    def every_end_was_reported_once(self) -> None:
        """For schedules in which every runner lives: also when the answer to the end of a job was lost."""
        for row in self.database.rows.values():
            if self.reported[row.id] != (row.status is DONE):
                self.wrong(
                    f"job {row.id} is {row.status}, and reported as done {self.reported[row.id]} times"
                )

    def nobody_living_was_rescued(self, names: set[str]) -> None:
        """For schedules in which only the server fails: whoever comes back may renew before anybody judges."""
        for at, name in self.database.rescued:
            if name in names:
                self.wrong(f"a job of {name}, which lives, was rescued at {at:.2f}")

    def no_lease_lapsed(self) -> None:
        """For schedules in which nothing fails: a lease is renewed long before its end, however long the job runs."""
        for at, job_id in self.database.lapsed:
            self.wrong(f"the lease of job {job_id} ran out before {at:.2f}, and its runner lives")

    def _check_reports(self, batch: Any, answers: Any) -> None:
        for finished, answer in zip(batch, answers, strict=True):
            key = finished.execution.key
            landed = self.database.landed.get(key)
            verb = Verb.COMPLETE if answer.completed else finished.settlement.verb
            if answer.landing is Landing.LANDED and (landed is Verb.COMPLETE) != (verb is Verb.COMPLETE):
                self.wrong(f"job {key[0]}: {verb} is reported as landed, {landed} did")
            if answer.landing is Landing.LOST and landed not in (None, Verb.RESCUE):
                row = self.database.rows[key[0]]
                if row.settled_token == key[1]:
                    self.wrong(f"job {key[0]}: {verb} is reported as lost, {landed} landed")
            if verb is Verb.RELEASE and key in self._begun_keys:
                self.wrong(f"job {key[0]} is given back although it began")

    def _check_rest(self, runner: SimulatedRunner) -> None:
        if len(runner.book):
            self.wrong(f"{runner.name}: the book still holds {runner.book.snapshot()}")
        held = {queue: lane.held for queue, lane in runner.dispatcher.state.lanes.items()}
        if any(held.values()) or not runner.executor.idle:
            self.wrong(f"{runner.name}: slots are not free: {held}, running {runner.executor.running}")
        settling = runner.settler.state
        if settling.pending or settling.doubtful or settling.delayed or settling.waits or settling.blocked:
            self.wrong(f"{runner.name}: outcomes are left: {settling}")
        if runner.dispatcher.state.unwritten:
            self.wrong(f"{runner.name}: {runner.dispatcher.state.unwritten} outcomes count as unwritten")
        if runner.dispatcher.state.lost:
            self.wrong(f"{runner.name}: lost claims are never done with: {runner.dispatcher.state.lost}")
