"""One run of the workload with faults at some points, and a second runner that finishes what is left."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import Connection

from sa_jobqueue.testing.server import connect
from tests.crash_points import database
from tests.crash_points.audit import audit, shown, told_by
from tests.crash_points.database import Scenario
from tests.crash_points.faults import Mode, Occurrence, Point, points_of, statement_of
from tests.crash_points.processes import Child, Nursery
from tests.support.proxy import Fate, Proxy, Rule
from tests.support.waiting import PATIENCE

#: In seconds. Where a process dies or stops, others wait for its leases; where only a connection breaks, nobody may. The
#: second runner has to keep what it holds also on a busy machine.
SHORT_LEASE, NEXT_LEASE, LEASE = 0.4, 1.5, 6.0
FIRST, SECOND = "first", "second"
#: The part of a runner that checks the tables before anything begins.
STARTING = "MainThread"
#: How often it is looked what has become of a run, in seconds.
LOOK = 0.02
_FATES = {
    Mode.KILLED_BEFORE: Fate.HOLD,
    Mode.KILLED_AFTER: Fate.SWALLOW_ANSWER,
    Mode.ANSWER_LOST: Fate.LOSE_ANSWER,
    Mode.LOST: Fate.LOSE,
    Mode.LATE: Fate.HOLD,
    Mode.ANSWER_LATE: Fate.HOLD,
}
_HELD = "SELECT count(*) FROM jobqueue_jobs WHERE status = 'running' AND leased_by = %s"

Fault = tuple[Point, Mode]


class Task(NamedTuple):
    """One run: the workload, what goes wrong in it, and what is wrong with the library, by its name in `mutants`."""

    scenario: Scenario
    faults: Sequence[Fault] = ()
    mutant: str | None = None


@dataclass
class Outcome:
    """What became of a run: the points that were passed, the faults whose points were not, and what is wrong.

    `evidence` is all that was noted, where something is. `lived`: the first runner has neither died nor stopped.
    """

    task: Task
    points: list[Point] = field(default_factory=list)
    missed: list[Fault] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lived: bool = False
    evidence: str = ""

    def __str__(self) -> str:
        scenario, faults, mutant = self.task
        where = [
            f"  {point}\n    {mode.value} ({mode.name})\n    {point.statement.text}" for point, mode in faults
        ]
        wrong = [f"  WRONG: {what}" for what in self.wrong]
        return "\n".join(
            [f"{scenario}{f', mutant: {mutant}' if mutant else ''}", *where, *wrong, self.evidence]
        )


class Place:
    """A database and a nursery of its own, for one run after another. Belongs to one thread at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.nursery = Nursery()
        self.connection: Connection[Any] = connect(url)
        self.connection.execute(database.SCHEMA.encode())

    def close(self) -> None:
        self.connection.close()
        self.nursery.close()

    def run(self, task: Task) -> Outcome:
        """The workload, with each of these faults once its point is reached."""
        outcome = Outcome(task)
        database.prepare(self.connection, task.scenario)
        number, name = tempfile.mkstemp(prefix="sajq-crash-point-", suffix=".log")
        os.close(number)
        log = Path(name)
        try:
            proxy = Proxy(self.url)
            try:
                rules = [proxy.on_sender(Occurrence(point), _FATES[mode]) for point, mode in task.faults]
                with ExitStack() as stack:
                    _Run(self, stack, proxy, outcome, log).go(rules)
            finally:
                proxy.close()
            outcome.points = points_of(task.scenario, (statement_of(*sent) for sent in proxy.sent))
            outcome.missed = [
                fault for fault, rule in zip(task.faults, rules, strict=True) if not rule.struck
            ]
            heard = log.read_text(errors="replace")
            living, told = (FIRST, told_by(FIRST, heard)) if outcome.lived else (None, None)
            outcome.wrong += audit(self.connection, living=living, told=told)
            if outcome.wrong:
                outcome.evidence = f"{shown(self.connection)}\n{heard}"
        finally:
            log.unlink()
        return outcome


class _Run:
    """The processes of one run, which end with `stack`."""

    def __init__(self, place: Place, stack: ExitStack, proxy: Proxy, outcome: Outcome, log: Path) -> None:
        self._place = place
        self._stack = stack
        self._proxied = proxy.url.render_as_string(hide_password=False)
        self._outcome = outcome
        self._log = log
        self._second: Child | None = None

    def go(self, rules: Sequence[Rule]) -> None:
        modes = [mode for _, mode in self._outcome.task.faults]
        lives = all(mode.lets_live for mode in modes)
        first = self._start(FIRST, self._proxied, LEASE if lives else SHORT_LEASE)
        # The proxy itself sees to those that let the process live.
        left = [pair for pair in zip(rules, modes, strict=True) if not pair[1].lets_live]
        stopping = False
        ends_at = time.monotonic() + 2 * PATIENCE
        while first.wait(LOOK) is None:
            if (struck := next((pair for pair in left if pair[0].struck), None)) is not None:
                left.remove(struck)
                self._strike(first, *struck)
            elif not stopping and not self._unfinished():
                stopping = True
                first.send(signal.SIGTERM)
            elif time.monotonic() > ends_at:
                self._outcome.wrong.append("the first runner does not come to an end")
                first.kill()
        # A runner that can't reach the database when it starts says so, and has done nothing.
        starting = any(point.statement.role == STARTING for point, _ in self._outcome.task.faults)
        killed = any(mode.kills for mode in modes)
        if first.code not in {0, *([-signal.SIGKILL] if killed else ()), *([70] if starting else ())}:
            self._outcome.wrong.append(f"the first runner ended with {first.code}")
        self._outcome.lived = first.code == 0 and self._second is None
        if self._second is None and self._unfinished():
            self._second = self._start(SECOND, self._place.url, NEXT_LEASE)
        if self._second is not None:
            self._finish(self._second)

    def _strike(self, first: Child, rule: Rule, mode: Mode) -> None:
        if mode.kills:
            first.kill()
            return
        # The process stops until its leases have ended and somebody else has taken its jobs.
        first.send(signal.SIGSTOP)
        if mode is Mode.ANSWER_LATE:
            rule.release()
        self._second = self._second or self._start(SECOND, self._place.url, NEXT_LEASE)
        if not _until(lambda: self._place.connection.execute(_HELD, (FIRST,)).fetchall() == [(0,)]):
            self._outcome.wrong.append("nobody takes the jobs of the runner that has stopped")
        if mode is Mode.LATE:
            rule.release()
        first.send(signal.SIGCONT)

    def _finish(self, second: Child) -> None:
        if not _until(lambda: not self._unfinished()):
            self._outcome.wrong.append("the second runner leaves jobs")
        second.send(signal.SIGTERM)
        if (code := second.wait(PATIENCE)) != 0:
            self._outcome.wrong.append(f"the second runner ended with {code}")

    def _start(self, name: str, url: str, lease: float) -> Child:
        place, mutant = self._place, self._outcome.task.mutant
        child = place.nursery.start(name, url, place.url, self._log, lease=lease, mutant=mutant)
        return self._stack.enter_context(child)

    def _unfinished(self) -> int:
        return database.unfinished(self._place.connection)


def _until(condition: Callable[[], bool]) -> bool:
    ends_at = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends_at:
            return False
        time.sleep(LOOK)
    return True
