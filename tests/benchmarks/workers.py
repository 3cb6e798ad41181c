"""The processes that the drain starts: `python -m tests.benchmarks.workers runner|limit URL JOBS`.

Says "ready" when all is imported, begins at the first line of its input, says "handled TIME" when every job has been
handled, TIME being that of the first, then "spent SECONDS" of processor time, and ends when its input ends.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner
from sa_jobqueue.testing.server import connect
from tests.benchmarks import limit

#: When each job began and which it was. Appending to a list is what both handlers do, and all they do.
HANDLED: list[tuple[float, int]] = []


def handle(number: int) -> None:
    HANDLED.append((time.time(), number))


def make_registry() -> Registry:
    registry = Registry()
    registry.handler("noop")(handle)
    return registry


def start_runner(url: str) -> Callable[[], Any]:
    """The bundled runner with its default settings."""
    runner = Runner(make_registry(), url)
    runner.start()
    return runner.stop


def start_limit(url: str) -> Callable[[], Any]:
    """The hand-written loop."""
    connection = connect(url)
    limit.drain(connection, handle)
    return connection.close


def main(worker: str, url: str, jobs: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    threading.Thread(target=_tell, args=(jobs, time.process_time()), daemon=True).start()
    stop = {"runner": start_runner, "limit": start_limit}[worker](url)
    sys.stdin.read()
    stop()


def _tell(jobs: int, started: float) -> None:
    while len(HANDLED) < jobs:
        time.sleep(0.02)
    if sorted(number for _, number in HANDLED) != list(range(jobs)):
        raise AssertionError(f"{len(HANDLED)} jobs were handled, and not each of {jobs} once")
    print("handled", HANDLED[0][0], flush=True)
    print("spent", time.process_time() - started, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
