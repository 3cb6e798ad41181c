"""Does a claim cost what it takes, whatever lies in the table?

A claim of ten jobs where a hundred are ready and nothing else is there, beside the same on a table with 300,000 jobs of
the future in the highest priority, 300,000 done ones and 300,000 due ones of a kind that the runner doesn't know, all of
them ahead: before the maintenance has moved these out of the way, right after it, and once vacuum has been there. The
clock runs for the statement, not for its commit: it is prepared as a runner's connection prepares it, its plan is the
generic one, and what it claimed is rolled back. The claims go in turns, table by table. Also told: what the sweep takes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, make_url, text

from sa_jobqueue import Registry
from sa_jobqueue.events import Subscribers, UnknownKindsPostponed
from sa_jobqueue.maintenance.unknown import UnknownJobs
from sa_jobqueue.statements.claim import claim
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks.measure import database, in_turns, median, print_table, spread
from tests.support.explain import explain

READY, OTHERS, CLAIMED = 100, 300_000, 10
RUNS, RUNS_BEFORE, WARM_UP = 300, 30, 10
GENERIC = "?options=-c%20plan_cache_mode%3Dforce_generic_plan"
FILL = (
    (
        "INSERT INTO jobqueue_jobs (kind, priority, run_at)"
        " SELECT 'known', 0, now() + interval '1 day' FROM generate_series(1, %s)"
    ),
    (
        "INSERT INTO jobqueue_jobs (kind, status, run_at, attempts, finished_at)"
        " SELECT 'known', 'done', now() - interval '1 hour', 1, now() FROM generate_series(1, %s)"
    ),
    (
        "INSERT INTO jobqueue_jobs (kind, run_at, created_at, updated_at) SELECT 'unknown', at, at, at"
        " FROM generate_series(1, %s) AS i, LATERAL (SELECT now() - interval '1 hour' + i * interval '1 ms') AS t (at)"
    ),
)
FILL_READY = "INSERT INTO jobqueue_jobs (kind) SELECT 'known' FROM generate_series(1, %s)"


def run(server: PostgresServer) -> None:
    """Print milliseconds of a claim on each table, its ratio to the first, and the buffers it touches."""
    with ExitStack() as stack:
        urls = [stack.enter_context(database(server)) for _ in range(2)]
        for url, fills in zip(urls, ((), FILL), strict=True):
            with connect(url) as connection:
                # Vacuum and analyze when it is said, and not while the clock runs.
                connection.execute("ALTER TABLE jobqueue_jobs SET (autovacuum_enabled = false)")
                for fill in fills:
                    connection.execute(fill, [OTHERS])
                connection.execute(FILL_READY, [READY])
                connection.execute("VACUUM ANALYZE jobqueue_jobs")
                connection.execute("CHECKPOINT")
        rows = _compare(*urls, "before", runs=RUNS_BEFORE)
        began = time.perf_counter()
        moved, batches, longest = _sweep(urls[1])
        took = time.perf_counter() - began
        rows += _compare(*urls, "after the sweep", runs=RUNS)
        for url in urls:
            with connect(url) as connection:
                connection.execute("VACUUM ANALYZE jobqueue_jobs")
        rows += _compare(*urls, "after the sweep and vacuum", runs=RUNS)
    print_table(
        f"Claim of {CLAIMED} among {READY} ready jobs, milliseconds: median (range) of {RUNS}, before of {RUNS_BEFORE}",
        ("", "ms", "ratio", "buffers"),
        rows,
    )
    print_table(
        "The sweep",
        ("", ""),
        [(f"{moved:,} jobs in {batches} batches", f"{took:.1f} s, longest {longest * 1e3:.0f} ms")],
    )


def _compare(small: str, loaded: str, when: str, *, runs: int) -> list[tuple[str, ...]]:
    with _claimer(small) as one, _claimer(loaded) as other:
        names = (f"{READY} ready jobs alone, {when}", f"loaded table, {when}")
        for _ in range(WARM_UP):
            _claim(one), _claim(other)
        times = in_turns({names[0]: lambda: _claim(one), names[1]: lambda: _claim(other)}, runs=runs)
    least = median(times[names[0]])
    return [
        (
            name,
            spread(times[name], ".2f"),
            f"{median(times[name]) / least:.2f}",
            f"{explain(url, claim(), _terms()).buffers:,}",
        )
        for name, url in zip(names, (small, loaded), strict=True)
    ]


@contextmanager
def _claimer(url: str) -> Iterator[Connection]:
    """A runner's connection, but for the transaction that is rolled back."""
    engine = runner_engine(make_url(url + GENERIC), "bench", deadline=timedelta(minutes=5))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _terms() -> dict[str, Any]:
    lease = timedelta(minutes=2)
    terms = {"queues": ["default"], "quotas": [CLAIMED], "kinds": ["known"]}
    return {**terms, "token": uuid.uuid4(), "lease": lease, "runner": "bench"}


def _claim(connection: Connection) -> float:
    """Milliseconds of one claim."""
    connection.execute(text("SELECT 1"))  # BEGIN is not what is measured
    terms = _terms()
    began = time.perf_counter()
    rows = connection.execute(claim(), terms).all()
    took = time.perf_counter() - began
    connection.rollback()
    if len(rows) != CLAIMED:
        raise RuntimeError(f"a claim took {len(rows)} jobs instead of {CLAIMED}")
    return took * 1e3


def _sweep(url: str) -> tuple[int, int, float]:
    """What a runner's maintenance does, without its pauses: jobs moved, in how many turns, the longest turn in seconds."""
    moved: list[UnknownKindsPostponed] = []
    engine = runner_engine(make_url(url + GENERIC), "bench", deadline=timedelta(minutes=5))
    store = Store(engine, name="bench")
    registry = Registry()
    registry.handler("known")(lambda: None)
    heard = Subscribers(
        [lambda event: moved.append(event) if isinstance(event, UnknownKindsPostponed) else None]
    )
    duty = UnknownJobs(store, registry=registry, queues=["default"], runner_id="bench", subscribers=heard)
    turns = []
    duty.look()  # the first look moves nothing
    more = True
    while more:
        began = time.perf_counter()
        more = duty.look()
        turns.append(time.perf_counter() - began)
    store.close()
    engine.dispose()
    return (
        sum(sum(kinds.values()) for event in moved for kinds in event.queues.values()),
        len(turns),
        max(turns),
    )
