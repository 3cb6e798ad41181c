"""One run of the workload with faults at some points, and a second runner that finishes what is left."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import Connection

from sa_jobqueue.testing.server import connect
from tests.crash_points import database
from tests.crash_points.audit import audit, shown, told_by
from tests.crash_points.database import Scenario
from tests.crash_points.faults import Mode, Occurrence, Point, points_of, statement_of
from tests.crash_points.processes import PATIENCE, Child, Nursery
from tests.support.proxy import Fate, Proxy, Rule

#: In seconds. Where a process dies or stops, others wait for its leases; where only a connection breaks, nobody may.
SHORT_LEASE, LEASE = 0.4, 3.0
FIRST, SECOND = "first", "second"
#: The part of a runner that checks the tables before anything begins.
STARTING = "MainThread"
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
    """What became of one run: the points that were passed, and what the audit found wrong."""

    scenario: Scenario
    faults: Sequence[Fault]
    points: list[Point] = field(default_factory=list)
    missed: list[Fault] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    #: The first runner has neither died nor stopped meanwhile.
    lived: bool = False
    evidence: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        where = [
            f"  {point}\n    {mode.value} ({mode.name})\n    {point.statement.text}"
            for point, mode in self.faults
        ]
        return "\n".join(
            [
                f"scenario {self.scenario}",
                *where,
                *(f"  WRONG: {wrong}" for wrong in self.wrong),
                self.evidence,
            ]
        )


class Place:
    """A database and a nursery of its own, for one run after another. Belongs to one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._mutant: str | None = None
        self._nursery = Nursery()
        self._connection: Connection[Any] = connect(url)
        self._connection.execute(database.SCHEMA.encode())

    def close(self) -> None:
        self._connection.close()
        self._nursery.close()

    def run(self, task: Task) -> Outcome:
        """The workload, with each of these faults once its point is reached."""
        began = time.monotonic()
        scenario, faults, self._mutant = task
        outcome = Outcome(scenario, faults)
        database.prepare(self._connection, scenario)
        number, name = tempfile.mkstemp(prefix="sajq-crash-point-", suffix=".log")
        os.close(number)
        log = Path(name)
        try:
            with ExitStack() as stack:
                proxy = Proxy(self._url)
                stack.callback(proxy.close)
                rules = [proxy.on_sender(Occurrence(point), _FATES[mode]) for point, mode in faults]
                self._let_happen(stack, proxy, rules, outcome, log)
                outcome.points = points_of(scenario, (statement_of(*sent) for sent in proxy.sent))
                outcome.missed = [fault for fault, rule in zip(faults, rules, strict=True) if not rule.struck]
            told = told_by(FIRST, log.read_text(errors="replace")) if outcome.lived else None
            outcome.wrong += audit(self._connection, living=FIRST if outcome.lived else None, told=told)
            if outcome.wrong:
                outcome.evidence = f"{shown(self._connection)}\n{log.read_text(errors='replace')}"
        finally:
            log.unlink()
        outcome.seconds = time.monotonic() - began
        return outcome

    def _let_happen(
        self, stack: ExitStack, proxy: Proxy, rules: Sequence[Rule], outcome: Outcome, log: Path
    ) -> None:
        patient = all(mode in (Mode.ANSWER_LOST, Mode.LOST) for _, mode in outcome.faults)
        proxied = proxy.url.render_as_string(hide_password=False)
        first = stack.enter_context(self._start(FIRST, proxied, log, LEASE if patient else SHORT_LEASE))
        stopping = False
        second: Child | None = None
        left = [
            (rule, mode)
            for rule, (_, mode) in zip(rules, outcome.faults, strict=True)
            if not _by_itself(mode)
        ]
        ends_at = time.monotonic() + 2 * PATIENCE
        while first.wait(0.02) is None:
            struck = next((pair for pair in left if pair[0].struck), None)
            if struck is not None:
                left.remove(struck)
                rule, mode = struck
                if mode.kills:
                    first.kill()
                elif second is None:
                    second = self._outlive(stack, first, rule, mode, outcome, log)
            elif not stopping and not database.unfinished(self._connection):
                stopping = True
                first.send(signal.SIGTERM)
            elif time.monotonic() > ends_at:
                outcome.wrong.append("the first runner does not come to an end")
                first.kill()
        self._judge_end(first, outcome, [mode for _, mode in outcome.faults])
        outcome.lived = first.code == 0 and second is None
        if second is None and database.unfinished(self._connection):
            second = stack.enter_context(self._start(SECOND, self._url, log, SHORT_LEASE))
        if second is not None:
            if not _until(lambda: not database.unfinished(self._connection)):
                outcome.wrong.append("the second runner leaves jobs")
            second.send(signal.SIGTERM)
            if (code := second.wait(PATIENCE)) != 0:
                outcome.wrong.append(f"the second runner ended with {code}")

    def _start(self, name: str, url: str, log: Path, lease: float) -> Child:
        return self._nursery.start(name, url, self._url, log, lease=lease, mutant=self._mutant)

    def _outlive(
        self, stack: ExitStack, first: Child, rule: Rule, mode: Mode, outcome: Outcome, log: Path
    ) -> Child:
        """The process stops until its leases have ended and somebody else has taken its jobs."""
        first.send(signal.SIGSTOP)
        if mode is Mode.ANSWER_LATE:
            rule.release()
        second = stack.enter_context(self._start(SECOND, self._url, log, SHORT_LEASE))
        if not _until(lambda: self._connection.execute(_HELD, (FIRST,)).fetchall() == [(0,)]):
            outcome.wrong.append("nobody takes the jobs of the runner that has stopped")
        if mode is Mode.LATE:
            rule.release()
        first.send(signal.SIGCONT)
        return second

    @staticmethod
    def _judge_end(first: Child, outcome: Outcome, modes: Sequence[Mode]) -> None:
        killed = any(mode.kills for mode in modes)
        # A runner that can't reach the database when it starts says so, and has done nothing.
        starting = any(point.statement.role == STARTING for point, _ in outcome.faults)
        allowed = {0} | ({-signal.SIGKILL} if killed else set()) | ({70} if starting else set())
        if first.code not in allowed:
            outcome.wrong.append(f"the first runner ended with {first.code}")


def _by_itself(mode: Mode) -> bool:
    """Nobody has anything to do about it."""
    return not (mode.kills or mode.stops)


def _until(condition: Callable[[], bool]) -> bool:
    ends_at = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def place(url: str) -> Iterator[Place]:
    """For the time of the block."""
    made = Place(url)
    try:
        yield made
    finally:
        made.close()
