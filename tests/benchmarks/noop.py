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
_handled: list[tuple[float, int]] = []
_spent_before: list[float] = []


@jobs.handler("noop")
def handle(number: int) -> None:
    """Note when which job began."""
    if not _handled:
        _spent_before.append(time.process_time())
    _handled.append((time.time(), number))
    if len(_handled) == JOBS:
        _tell()


def _tell() -> None:
    if sorted(number for _, number in _handled) != list(range(JOBS)):
        raise AssertionError(f"{len(_handled)} jobs were handled, but not each of {JOBS} once")
    print("handled", _handled[0][0], time.process_time() - _spent_before[0], flush=True)
