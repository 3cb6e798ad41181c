"""What do a hundred thousand jobs cost in one call, in time and in memory, beside one INSERT by hand?

The ruler is psycopg alone: the payloads made JSON and sent as arrays to one `INSERT ... SELECT FROM unnest` into the same
table, with all its indexes and its trigger, which answers with the ids. A list of jobs is made outside of the clock, a
generator makes them inside. Every commit counts.

Memory is what one call adds at its highest, as a multiple of the bytes of all payloads: by tracemalloc, and the resident
size of the process, each in a process of its own. `python -m tests.benchmarks.bulk URL FORM BYTES JOBS HOW` measures one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Engine, create_engine

from sa_jobqueue import Job, enqueue, enqueue_many
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks.measure import database, in_turns, median, print_table, spread

JOBS, RUNS = 100_000, 7
#: Bytes of a payload, and of how many jobs: not more than half a gigabyte in all.
SIZES: Mapping[int, int] = {100: 100_000, 1_000: 100_000, 10_000: 50_000}
BY_HAND = """
    INSERT INTO jobqueue_jobs (kind, payload)
    SELECT kind, payload FROM unnest(%s::text[], %s::jsonb[]) AS given (kind, payload) RETURNING id
"""


class Cost(NamedTuple):
    """Seconds of the call, and seconds of processor time that the client spent in it."""

    taken: float
    client: float


def run(server: PostgresServer) -> None:
    """Print both tables."""
    with database(server) as url:
        _print_times(url)
        _print_memory(url)


def _print_times(url: str) -> None:
    engine = create_engine(url)
    contestants: dict[str, Callable[[], Cost]] = {
        "one INSERT by hand": lambda: _by_hand(url),
        "enqueue_many, a list": lambda: _enqueue_many(url, engine, list(_jobs(JOBS))),
        "enqueue_many, a generator": lambda: _enqueue_many(url, engine, _jobs(JOBS)),
        "enqueue_many, a key each": lambda: _enqueue_many(url, engine, _keyed_jobs(JOBS)),
    }
    figures = in_turns(contestants, runs=RUNS)
    ruler = median([cost.taken for cost in figures["one INSERT by hand"]])
    rows = []
    for name, costs in figures.items():
        rates = [JOBS / cost.taken for cost in costs]
        client = [cost.client / JOBS * 1e6 for cost in costs]
        ratio = ruler / median([cost.taken for cost in costs])
        rows.append((name, spread(rates), f"{ratio:.2f}", spread(client, ".1f")))
    print_table(
        f"{JOBS:,} jobs and their commit, median of {RUNS} (range)",
        ("", "jobs/s", "ratio", "client CPU µs/job"),
        rows,
    )
    engine.dispose()


def _print_memory(url: str) -> None:
    rows = []
    for size, count in SIZES.items():
        for form in ("list", "generator"):
            with connect(url) as connection:
                connection.execute("TRUNCATE jobqueue_jobs")
            arguments = [url, form, str(size), str(count)]
            traced, resident = (_child(*arguments, how) for how in ("traced", "resident"))
            rows.append((f"{size:,} bytes, {form}", f"{count:,}", f"{traced:.2f}", f"{resident:.2f}"))
    print_table(
        "Memory that the call adds at its highest, as a multiple of the payloads",
        ("payloads", "jobs", "tracemalloc", "resident"),
        rows,
    )


def _jobs(count: int) -> Iterator[Job]:
    return (enqueue("noop", {"number": number}) for number in range(count))


def _keyed_jobs(count: int) -> Iterator[Job]:
    return (
        enqueue("noop", {"number": number}, idempotency_key=f"noop:{number:06d}") for number in range(count)
    )


def _empty(url: str) -> None:
    with connect(url) as connection:
        connection.execute("TRUNCATE jobqueue_jobs")
        connection.execute("CHECKPOINT")


def _by_hand(url: str) -> Cost:
    _empty(url)
    with connect(url) as connection:
        began, spent = time.perf_counter(), time.process_time()
        with connection.transaction():
            payloads = [json.dumps({"number": number}) for number in range(JOBS)]
            connection.execute(BY_HAND, [["noop"] * JOBS, payloads]).fetchall()
        return Cost(time.perf_counter() - began, time.process_time() - spent)


def _enqueue_many(url: str, engine: Engine, jobs: Iterable[Job]) -> Cost:
    _empty(url)
    with engine.connect() as connection:
        began, spent = time.perf_counter(), time.process_time()
        enqueue_many(connection, jobs)
        connection.commit()
        return Cost(time.perf_counter() - began, time.process_time() - spent)


def _child(*arguments: str) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.bulk", *arguments]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def _sized_jobs(size: int, count: int) -> Iterator[Job]:
    filling = "x" * (size - len('{"number":,"text":""}') - 6)
    return (enqueue("noop", {"number": 100_000 + number, "text": filling}) for number in range(count))


def _added(connection: Connection, jobs: Iterable[Job], how: str) -> int:
    """Bytes that the call adds at its highest."""
    if how == "traced":
        tracemalloc.start()
        enqueue_many(connection, jobs)
        return tracemalloc.get_traced_memory()[1]
    before = _resident("VmRSS")
    enqueue_many(connection, jobs)
    return _resident("VmHWM") - before


def _resident(line: str) -> int:
    """Bytes, as Linux tells them; getrusage() would tell the highest of the parent, before it became this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{line}:")[2].split()[0]) * 1024


def _measure(url: str, form: str, size: int, count: int, how: str) -> float:
    with create_engine(url).connect() as connection:
        enqueue_many(connection, _jobs(10))  # what is loaded and cached once is there by now
        connection.commit()
        jobs: Iterable[Job] = _sized_jobs(size, count)
        if form == "list":
            jobs = list(jobs)
        added = _added(connection, jobs, how)
        connection.commit()
    return added / (size * count)


if __name__ == "__main__":
    print(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
