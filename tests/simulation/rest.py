"""What must be true when the faults have stopped and time has passed: every job at rest, nothing left anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.runner.low_water import FULL_LOOK_INTERVAL
from sa_jobqueue.states import TERMINAL, Verb
from tests.simulation.database import CANCELLED, DONE
from tests.simulation.profiles import POLL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.checks import Checks
    from tests.simulation.database import Database, Row
    from tests.simulation.process import Process

#: How long a due job waits at most, in seconds, for a runner that has slots free: whether a notification has told of it,
#: or somebody's looks find it.
TOLD_WITHIN, FOUND_WITHIN = 0.25, POLL + FULL_LOOK_INTERVAL


class Rest:
    """The judgement at the end of one schedule."""

    def __init__(self, checks: Checks, database: Database) -> None:
        self._checks = checks
        self._ledger = checks.ledger
        self._database = database

    @property
    def _rows(self) -> Iterator[Row]:
        yield from self._database.rows.values()
        yield from self._database.pruned.values()

    def judge(self, processes: Iterable[Process]) -> None:
        """Of every schedule."""
        for row in self._rows:
            self._ends(row)
            self._is_what_landed(row)
            self._counts_its_attempts(row)
        for process in processes:
            if process.stopping and not process.gone:
                self._checks.wrong(f"NEVER-STOPS: {process.name} was told to end and does not")
            elif not process.gone:
                for what in process.left_over:
                    self._checks.wrong(f"LEFT: {process.name}: {what}")

    def attempts_are_only_spent_on_runs(self) -> None:
        """MISCOUNTED: for schedules in which every runner lives and is connected most of the time.

        A lost claim is given back for free while fewer starts than `max_attempts` have been, whatever gave them back. What
        expires is claimed for its end.
        """
        for row in self._rows:
            if row.expired:
                continue
            counted, began = row.attempts - row.returned, self._ledger.spent(row.id)
            if counted != began and row.returned < row.max_attempts:
                self._checks.wrong(
                    f"MISCOUNTED: job {row.id} counts {counted} attempts and ran {began} times"
                )

    def every_end_was_reported_once(self) -> None:
        """UNTOLD: for schedules in which every runner lives, also when the answer to the end of a job was lost."""
        for row in self._rows:
            told = self._ledger.reported_done[row.id]
            if told != (row.status is DONE):
                self._checks.wrong(f"UNTOLD: job {row.id} is {row.status}, and was told done {told} times")

    def nobody_living_was_rescued(self, names: Iterable[str]) -> None:
        """RESCUED-ALIVE: for schedules in which only the server fails: whoever comes back may renew before anybody judges."""
        for at, name in self._ledger.rescued:
            if name in names:
                self._checks.wrong(f"RESCUED-ALIVE: a job of {name}, which lives, was rescued at {at:.2f}")

    def no_lease_lapsed(self) -> None:
        """LAPSED: for schedules in which nothing fails: a lease is renewed long before its end, however long the job runs."""
        for at, job_id in self._ledger.lapsed:
            self._checks.wrong(
                f"LAPSED: the lease of job {job_id} ran out before {at:.2f}, and its runner lives"
            )

    def progress_is_kept(self) -> None:
        """PROGRESS-LOST: for schedules in which nothing fails: what a handler has said last stays with its job."""
        for row in self._rows:
            said = [facts.said for facts in self._ledger.of_job[row.id] if facts.said is not None]
            if said and row.progress != said[-1]:
                self._checks.wrong(
                    f"PROGRESS-LOST: job {row.id} shows the progress {row.progress}, and {said[-1]} was said"
                )

    def what_is_due_is_begun_soon(self) -> None:
        """LATE: for schedules in which nothing fails and slots are free."""
        for waited, job_id, told in self._ledger.waits:
            if waited > (TOLD_WITHIN if told else FOUND_WITHIN):
                self._checks.wrong(f"LATE: job {job_id} waited for {waited:.2f} s{', though told' * told}")

    def what_is_old_is_gone(self, age: float) -> None:
        """KEPT-TOO-LONG: for schedules with a short retention: only what must be kept is there when it is over."""
        for row in self._database.rows.values():
            forgotten = row.status in (DONE, CANCELLED) and row.finished_at + age < self._checks.world.now
            if forgotten and not row.referenced and row.id not in self._database.passed_over:
                self._checks.wrong(f"KEPT-TOO-LONG: job {row.id} has finished at {row.finished_at:.2f}")

    def _ends(self, row: Row) -> None:
        """NEVER-ENDS, CANCEL-LOST: whatever happened, the job has come to rest, and where it was promised to."""
        if row.status not in TERMINAL:
            self._checks.wrong(f"NEVER-ENDS: job {row.id}: {row}")
        if row.cancel_requested and row.status not in (CANCELLED, DONE):
            self._checks.wrong(f"CANCEL-LOST: job {row.id} was to be cancelled and is {row.status}")

    def _is_what_landed(self, row: Row) -> None:
        """DONE-UNLANDED, EFFECTS: done is what was completed, once; effects are there if and only if their own transaction completed the job."""
        completions, effects = self._ledger.completions[row.id], self._ledger.effects[row.id]
        if completions != (row.status is DONE):
            self._checks.wrong(f"DONE-UNLANDED: job {row.id} is {row.status} with {completions} completions")
        by_block = any(facts.block and facts.landed is Verb.COMPLETE for facts in self._ledger.of_job[row.id])
        if effects != by_block:
            self._checks.wrong(f"EFFECTS: job {row.id} has them {effects} times: {row}")

    def _counts_its_attempts(self, row: Row) -> None:
        """BUDGET, FREE-RUN: no run is free of charge."""
        counted, began = row.attempts - row.returned, self._ledger.spent(row.id)
        if not 0 <= counted <= row.max_attempts:
            self._checks.wrong(f"BUDGET: job {row.id} counts {counted} of {row.max_attempts} attempts")
        if began > counted:
            self._checks.wrong(f"FREE-RUN: job {row.id} began {began} times and counts {counted} attempts")
