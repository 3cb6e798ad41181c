"""What does it cost that a handler's row and the end of its job are one transaction?

20,000 jobs whose handler writes one row, ten at once, drained by the runner with and without `ctx.complete()`, beside
the same transaction by hand: on psycopg alone, and in a Session, for SQLAlchemy has its price whoever ends the job. Each
commit waits for the disk, so that all of them are slower than handlers that write
nothing; what counts is the difference between them.
"""

from __future__ import annotations

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks import limit, writing
from tests.benchmarks.drain import JOBS, UNFINISHED, Drain, fill, timed_drain
from tests.benchmarks.measure import database, in_turns, median, print_table, spread

RUNS = 5


def run(server: PostgresServer) -> None:
    """Print jobs per second of each, and the ratio to hand-written SQL."""
    drains = in_turns(
        {
            "hand-written SQL": lambda: _by_hand(server),
            "the same in a Session": lambda: _by_hand(server, "session"),
            "a session of its own": lambda: _runner(server, "own"),
            "ctx.complete()": lambda: _runner(server, "complete"),
        },
        runs=RUNS,
    )
    least = median([drain.rate for drain in drains["hand-written SQL"]])
    rows = []
    for name, each in drains.items():
        rates, cpu = [drain.rate for drain in each], [drain.cpu for drain in each]
        rows.append((name, spread(rates), f"{median(rates) / least:.2f}", spread(cpu)))
    print_table(
        f"Drain of {JOBS:,} jobs that write one row, {writing.AT_ONCE} at once, one process, median of {RUNS} (range)",
        ("", "jobs/s", "ratio", "client CPU µs/job"),
        rows,
    )


def _runner(server: PostgresServer, kind: str) -> Drain:
    with database(server) as url:
        fill(url, kind)
        with connect(url) as connection:
            connection.execute(writing.TABLE)
        options = ("--database-url", url, "--log-level", "warning", "--queues", f"default:{writing.AT_ONCE}")
        command = ("-m", "sa_jobqueue", "run", "tests.benchmarks.writing:jobs", *options)
        return timed_drain(command, url, UNFINISHED, BENCH_URL=url)


def _by_hand(server: PostgresServer, *how: str) -> Drain:
    with database(server, queue=False) as url:
        with connect(url) as connection:
            limit.create(connection)
            limit.fill(connection, JOBS)
            connection.execute(writing.TABLE)
        command = ("-m", "tests.benchmarks.writing", url, *how)
        return timed_drain(command, url, limit.UNFINISHED, BENCH_URL=url)
