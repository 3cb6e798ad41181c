"""How many async handlers that mostly wait does one runner process get through?

20,000 jobs, each awaiting 50 ms, on the executor asyncio; what would be possible if the runner cost nothing is the number
of handlers at once divided by those 50 ms. The jobs are kept as done, their outcomes fenced; each run has a fresh database
and a process of its own, the command as it is delivered. How busy the machine was with other things is told as the load
before the first run: the figures of a busy one say little.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sa_jobqueue.testing import PostgresServer
from tests.benchmarks.drain import JOBS, UNFINISHED, Drain, fill, timed_drain
from tests.benchmarks.measure import database, in_turns, median, print_table, spread

NAP, RUNS = 0.05, 5
AT_ONCE = (100, 200, 400)


def run(server: PostgresServer) -> None:
    """Print jobs per second for each number of handlers at once, and the share of what is possible."""
    load = os.getloadavg()[0]
    drains = in_turns({str(number): _drain(server, number) for number in AT_ONCE}, runs=RUNS)
    rows = []
    for name, each in drains.items():
        rates = [drain.rate for drain in each]
        possible = int(name) / NAP
        cpu = spread([drain.cpu for drain in each])
        rows.append((name, spread(rates), f"{possible:,.0f}", f"{median(rates) / possible:.2f}", cpu))
    print_table(
        f"{JOBS:,} kept jobs that await {NAP * 1000:.0f} ms, one process, median of {RUNS} (range), load before {load:.1f}",
        ("handlers at once", "jobs/s", "possible", "share", "client CPU µs/job"),
        rows,
    )


def _drain(server: PostgresServer, at_once: int) -> Callable[[], Drain]:
    def drain() -> Drain:
        with database(server) as url:
            fill(url, "nap")
            options = (
                "--database-url",
                url,
                "--log-level",
                "warning",
                "--queues",
                f"default:{at_once}@asyncio",
            )
            command = ("-m", "sa_jobqueue", "run", "tests.benchmarks.nap:jobs", *options)
            return timed_drain(command, url, UNFINISHED, BENCH_NAP=str(NAP))

    return drain
