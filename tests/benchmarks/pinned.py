"""Does the queue stay as fast as it was while a transaction elsewhere holds an old snapshot?

200,000 jobs go through: the first 180,000 by plain SQL that writes what claims and completions write, the last 20,000 by one
runner, whose drain is timed as in `drain`. In one case a REPEATABLE READ transaction has read the table before all of it
and stays open, so that no vacuum removes a version of a row or its entries in an index; in the other nobody holds
anything back. Both are vacuumed before the runner starts. Also told: buffers of a claim that begins with the first job,
and of one behind the marks of a runner that has come as far.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sa_jobqueue.records import PRIORITIES, SMALLEST_ID
from sa_jobqueue.statements.claim import claim
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks.drain import JOBS, Drain, fill, timed_drain
from tests.benchmarks.measure import database, in_turns, median, print_table, spread
from tests.support.explain import explain

THROUGH, RUNS = 180_000, 3
FILL = "INSERT INTO jobqueue_jobs (kind) SELECT 'noop' FROM generate_series(1, %s)"
CLAIM = """
    UPDATE jobqueue_jobs SET status = 'running', attempts = 1, lease_token = gen_random_uuid(),
        lease_until = now() + interval '2 minutes', leased_by = 'bench', updated_at = now()
"""
COMPLETE = """
    UPDATE jobqueue_jobs SET status = 'done', settled_token = lease_token, lease_token = NULL, lease_until = NULL,
        leased_by = NULL, finished_at = now(), updated_at = now()
"""
UNFINISHED = f"SELECT count(*) FROM jobqueue_jobs WHERE id > {THROUGH} AND status <> 'done'"


@dataclass(frozen=True, slots=True)
class Run:
    """One drain, and what a claim touches before it: from the first job on, and behind the marks."""

    drain: Drain
    first: int
    behind: int


def run(server: PostgresServer) -> None:
    """Print jobs per second of both, their ratio, and the buffers."""
    runs = in_turns(
        {
            "nobody holds a snapshot": lambda: drain_behind(server, pinned=False),
            "an old snapshot": lambda: drain_behind(server, pinned=True),
        },
        runs=RUNS,
    )
    usual = median([one.drain.rate for one in runs["nobody holds a snapshot"]])
    rows = []
    for name, each in runs.items():
        rates = [one.drain.rate for one in each]
        buffers = (f"{median([one.first for one in each]):,}", f"{median([one.behind for one in each]):,}")
        rows.append((name, spread(rates), f"{median(rates) / usual:.2f}", *buffers))
    print_table(
        f"Drain of the last {JOBS:,} of {THROUGH + JOBS:,} kept jobs, median of {RUNS} (range)",
        ("", "jobs/s", "ratio", "buffers of a claim", "behind marks"),
        rows,
    )


def drain_behind(server: PostgresServer, *, pinned: bool) -> Run:
    """One runner with its default settings, behind all that is through."""
    with database(server) as url, _old_snapshot(url) if pinned else nullcontext():
        with connect(url) as connection:
            connection.execute(FILL, [THROUGH])
            connection.execute(CLAIM)
            connection.execute(COMPLETE)
            connection.execute("VACUUM ANALYZE jobqueue_jobs")
        fill(url, "noop")
        first, behind = _buffers(url)
        command = ("-m", "sa_jobqueue", "run", "tests.benchmarks.noop:jobs", "--database-url", url)
        return Run(timed_drain((*command, "--log-level", "warning"), url, UNFINISHED), first, behind)


@contextmanager
def _old_snapshot(url: str) -> Iterator[None]:
    """Somebody's transaction that has read the table."""
    with connect(url) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM jobqueue_jobs")
        yield
        connection.execute("ROLLBACK")


def _buffers(url: str) -> tuple[int, int]:
    terms: dict[str, Any] = {
        "queues": ["default"],
        "quotas": [10],
        "kinds": ["noop"],
        "token": uuid.uuid4(),
        "lease": timedelta(minutes=2),
        "runner": "bench",
    }
    with connect(url) as connection:
        time = connection.execute("SELECT min(run_at) FROM jobqueue_jobs WHERE id > %s", [THROUGH]).fetchone()
    assert time is not None
    marks = {"low_times": [*time] * PRIORITIES, "low_ids": [SMALLEST_ID] * PRIORITIES}
    return explain(url, claim(), terms).buffers, explain(url, claim(), {**terms, **marks}).buffers
