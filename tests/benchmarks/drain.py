"""How fast does one runner process empty a full queue, beside the least that the server must do for it?

20,000 jobs wait, whose handler does nothing. The clock runs from the first handled job until the table has no
unfinished one; all imports are over by then. The jobs are kept as done, their outcomes fenced and written in batches.
Each run has a fresh database and a process of its own: for the runner, the command as it is delivered, without and with
its line in the log for each job. The processor time of the process is told too: on a machine that is busy with other
things it says more about a change than the clock does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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
    """Print jobs per second of each, and the ratio to hand-written SQL."""
    drains = in_turns(
        {
            "hand-written SQL": lambda: drain_limit(server),
            "runner": lambda: drain_queue(server, log_level="warning"),
            "runner, logging each job": lambda: drain_queue(server, log_level="info"),
        },
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


def fill(url: str, kind: str) -> None:
    """Enqueue all jobs, numbered from 0."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        enqueue_many(connection, (enqueue(kind, {"number": number}) for number in range(JOBS)))


def drain_queue(server: PostgresServer, *, log_level: str) -> Drain:
    """One runner with its default settings."""
    with database(server) as url:
        fill(url, "noop")
        options = ("--database-url", url, "--log-level", log_level)
        command = ("-m", "sa_jobqueue", "run", "tests.benchmarks.noop:jobs", *options)
        return timed_drain(command, url, UNFINISHED)


def drain_limit(server: PostgresServer) -> Drain:
    """The hand-written loop."""
    with database(server, queue=False) as url:
        with connect(url) as connection:
            limit.create(connection)
            limit.fill(connection, JOBS)
        return timed_drain(("-m", "tests.benchmarks.limit", url), url, limit.UNFINISHED)


def timed_drain(command: Sequence[str], url: str, unfinished: str, **variables: str) -> Drain:
    """Run a process that speaks as `noop` does, and wait until nothing is unfinished."""
    calm_down(url)
    with (
        connect(url) as watcher,
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "BENCH_JOBS": str(JOBS), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        # The process speaks once all jobs have been handled, so that watching costs nothing until then.
        word, *figures = process.stdout.readline().split() or ["nothing"]
        if word != "handled":
            process.kill()
            log.seek(0)
            raise RuntimeError(f"{' '.join(command)} broke off:\n{log.read()[-2000:]}")
        while watcher.execute(unfinished).fetchone() != (0,):
            time.sleep(0.005)
        ended = time.time()
        process.terminate()
    first, spent = map(float, figures)
    return Drain(JOBS / (ended - first), spent / JOBS * 1e6)
