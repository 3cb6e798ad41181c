"""The handler that does nothing, and a registry with it: `sa-jobqueue run tests.benchmarks.noop:jobs`.

Its process says "handled FIRST SPENT" on its output once $BENCH_JOBS jobs have been handled: the time of the first,
and the seconds of processor time that the process has spent since then.
"""

from __future__ import annotations

import os
import time

from sa_jobqueue.registry import Registry

JOBS = int(os.environ.get("BENCH_JOBS", "0"))
jobs = Registry()
_began: list[tuple[float, float]] = []
_handled: list[int] = []


@jobs.handler("noop")
def handle(number: int) -> None:
    """Note that the job was handled."""
    note_begin()
    note_end(number)


def note_begin() -> None:
    """A handler begins; the first one starts the clock."""
    if not _began:
        _began.append((time.time(), time.process_time()))


def note_end(number: int) -> None:
    """A handler has done its job; the last one tells."""
    _handled.append(number)
    if len(_handled) == JOBS:
        _tell()


def _tell() -> None:
    if sorted(_handled) != list(range(JOBS)):
        raise AssertionError(f"{len(_handled)} jobs were handled, but not each of {JOBS} once")
    began, spent_before = _began[0]
    print("handled", began, time.process_time() - spent_before, flush=True)
