"""How fast does one runner process empty a full queue, beside the least that the server must do for it?

20,000 jobs wait, whose handler does nothing. The clock runs from the first handled job until the table has no
unfinished one; everything is imported and waiting before. The jobs are kept as done, their outcomes fenced and written
in batches. Each run has a fresh database and a process of its own. The processor time of that process is told too: on a
machine that is busy with other things it says more about a change than the clock does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import NullPool, create_engine

from sa_jobqueue import enqueue, enqueue_many
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks import limit
from tests.benchmarks.measure import calm_down, database, in_turns, median, print_table, spread

JOBS, RUNS = 20_000, 5
ROOT = Path(__file__).resolve().parents[2]
UNFINISHED = "SELECT count(*) FROM jobqueue_jobs WHERE status <> 'done'"


@dataclass(frozen=True, slots=True)
class Drain:
    """One run: jobs per second, and microseconds of the process's own time for each."""

    rate: float
    cpu: float


def run(server: PostgresServer) -> None:
    """Print jobs per second of both, and their ratio."""
    drains = in_turns(
        {"hand-written SQL": lambda: drain_limit(server), "one runner": lambda: drain_queue(server)},
        runs=RUNS,
    )
    least = median([drain.rate for drain in drains["hand-written SQL"]])
    rows = []
    for name, each in drains.items():
        rates = [drain.rate for drain in each]
        rows.append(
            (name, spread(rates), f"{median(rates) / least:.2f}", spread([drain.cpu for drain in each]))
        )
    print_table(
        f"Drain of {JOBS:,} kept jobs by one process, median of {RUNS} (range)",
        ("", "jobs/s", "ratio", "client CPU µs/job"),
        rows,
    )


def drain_queue(server: PostgresServer) -> Drain:
    """One runner with its default settings."""
    with database(server) as url:
        engine = create_engine(url, poolclass=NullPool)
        with engine.begin() as connection:
            enqueue_many(connection, (enqueue("noop", {"number": number}) for number in range(JOBS)))
        return _timed("runner", url, UNFINISHED)


def drain_limit(server: PostgresServer) -> Drain:
    """The hand-written loop."""
    with database(server, queue=False) as url:
        with connect(url) as connection:
            limit.create(connection)
            limit.fill(connection, JOBS)
        return _timed("limit", url, limit.UNFINISHED)


def _timed(worker: str, url: str, unfinished: str) -> Drain:
    calm_down(url)
    command = [sys.executable, "-m", "tests.benchmarks.workers", worker, url, str(JOBS)]
    with (
        connect(url) as watcher,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        _expect("ready", process.stdout.readline())
        process.stdin.write("go\n")
        process.stdin.flush()
        # The first handled job's time comes once all are handled, so that watching costs nothing until then.
        first = float(_expect("handled", process.stdout.readline()))
        spent = float(_expect("spent", process.stdout.readline()))
        while watcher.execute(unfinished).fetchone() != (0,):
            time.sleep(0.005)
        ended = time.time()
        process.stdin.close()
    if process.returncode:
        raise RuntimeError(f"the worker ended with {process.returncode}: {' '.join(command)}")
    return Drain(JOBS / (ended - first), spent / JOBS * 1e6)


def _expect(word: str, line: str) -> str:
    found, _, rest = line.strip().partition(" ")
    if found != word:
        raise RuntimeError(f"the worker broke off before it said {word!r}, see its error above")
    return rest
