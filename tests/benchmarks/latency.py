"""How long does a committed job wait for an idle runner that polls?

One job every 50 ms and a bit, at the poll interval that is the default and at a shorter one; from the return of the
commit to the first line of the handler, in one process, so that one clock measures both ends. For reference: no figure
here is a promise.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from sa_jobqueue import Registry, enqueue
from sa_jobqueue.runner import Runner, RunnerSettings
from sa_jobqueue.testing import PostgresServer
from tests.benchmarks.measure import database, print_table

#: Not a multiple of any poll interval: the jobs should meet every phase of it.
JOBS, PAUSE = 100, 0.0537
INTERVALS = (timedelta(seconds=1), timedelta(milliseconds=50))
PATIENCE = 30.0


def run(server: PostgresServer) -> None:
    """Print the median, the 99th percentile and the longest wait for each poll interval."""
    rows = []
    for interval in INTERVALS:
        waits = sorted(_waits(server, interval))
        p99 = statistics.quantiles(waits, n=100, method="inclusive")[98]
        figures = (statistics.median(waits), p99, waits[-1])
        rows.append((f"{interval.total_seconds():g} s", *(f"{wait * 1e3:,.0f}" for wait in figures)))
    print_table(
        f"Commit to handler, runner idle, {JOBS} jobs, one every {PAUSE * 1e3:.0f} ms, milliseconds",
        ("poll interval", "median", "99 %", "longest"),
        rows,
    )


def _waits(server: PostgresServer, interval: timedelta) -> list[float]:
    began: dict[int, float] = {}
    committed: dict[int, float] = {}
    jobs = Registry()

    @jobs.handler("clock")
    def clock(number: int) -> None:
        began[number] = time.perf_counter()

    with database(server) as url:
        engine = create_engine(url)
        with Runner(jobs, url, RunnerSettings(poll_interval=interval)):
            for number in range(JOBS):
                with Session(engine) as session:
                    session.add(enqueue(clock.call(number=number)))
                    session.commit()
                committed[number] = time.perf_counter()
                time.sleep(PAUSE)
            deadline = time.monotonic() + PATIENCE
            while len(began) < JOBS:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"only {len(began)} of {JOBS} jobs ran within {PATIENCE:g} s")
                time.sleep(0.01)
        engine.dispose()
    # A handler may begin before our thread has seen its own commit return.
    return [max(0.0, began[number] - committed[number]) for number in range(JOBS)]
