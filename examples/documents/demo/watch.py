"""Waiting for runners: what the database says, shown as a line of progress, until it says what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine, text

from examples.documents.demo.runner import RunnerProcess
from examples.documents.demo.terminal import Terminal
from examples.documents.demo.trouble import DemoError

#: Nothing in the demo stands still for so long, in seconds, unless something is wrong.
PATIENCE = 60.0
_QUERY = text("SELECT status, count(*), sum(attempts) FROM jobqueue_jobs GROUP BY status")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs there are of each status, and how often jobs were started."""

    ready: int = 0
    running: int = 0
    done: int = 0
    dead: int = 0
    starts: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.running + self.done + self.dead

    @property
    def unfinished(self) -> int:
        return self.ready + self.running

    def __str__(self) -> str:
        return (
            f"{self.done} of {self.total} done, {self.running} running, {self.ready} ready, {self.dead} dead"
            f" after {self.starts} starts"
        )


def watch(
    engine: Engine, runner: RunnerProcess, terminal: Terminal, *, until: Callable[[Counts], bool]
) -> Counts:
    """Show progress until the counts are as wanted, and return them.

    Raises DemoError when the runner ends, or when nothing changes for PATIENCE seconds.
    """
    changed_at, before = time.monotonic(), None
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while True:
            rows = connection.execute(_QUERY).all()
            numbers = {status: number for status, number, _ in rows}
            counts = Counts(**numbers, starts=sum(starts for _, _, starts in rows))
            terminal.progress(f"{runner.name}: {counts}")
            if until(counts):
                return counts
            if counts != before:
                changed_at, before = time.monotonic(), counts
            if time.monotonic() - changed_at > PATIENCE:
                raise DemoError(
                    f"nothing has changed for {PATIENCE:.0f} s: {counts}; the end of the log of {runner.name}:\n"
                    f"{runner.log_end()}"
                )
            runner.check()
            time.sleep(0.05)
