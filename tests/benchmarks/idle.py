"""What does a runner cost that has nothing to do, and what does the import cost an application?

The runner is the command itself, on an empty table with its default settings, watched from outside. Its memory is
compared with a process that has imported SQLAlchemy's ORM and psycopg and holds as many connections.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks.measure import database, median, print_table, spread

SECONDS = 20.0
ROOT = Path(__file__).resolve().parents[2]
CONNECTED = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
#: A process as it would be without the queue.
BARE = """
import sys
import psycopg, sqlalchemy.orm
from sqlalchemy import create_engine
engine = create_engine(sys.argv[1], pool_size=10)
held = [engine.connect() for _ in range(int(sys.argv[2]))]
for connection in held:
    connection.exec_driver_sql("SELECT 1").all()
    connection.commit()
sys.stdin.read()
"""
#: What nobody pays for who only enqueues.
UNWANTED = (
    "click",
    "asyncpg",
    "greenlet",
    "psycopg",
    "alembic",
    "sa_jobqueue.runner",
    "sa_jobqueue.cli",
)
IMPORT = """
import sys, time
began = time.perf_counter()
import {module}
print(time.perf_counter() - began, *sys.modules)
"""
IMPORT_RUNS = 7
#: What an application on PostgreSQL imports anyway, at its first engine.
BASE = "sqlalchemy.orm, sqlalchemy.dialects.postgresql"


def run(server: PostgresServer) -> None:
    """Print both tables."""
    _print_idle(server)
    _print_imports()


def _print_idle(server: PostgresServer) -> None:
    with database(server) as url:
        command = ("-m", "sa_jobqueue", "run", "tests.benchmarks.noop:jobs", "--database-url", url)
        with _process(command) as runner, connect(url) as watcher:
            connections = _connections(watcher)
            before = _cpu_seconds(runner.pid)
            time.sleep(SECONDS)
            percent = (_cpu_seconds(runner.pid) - before) / SECONDS * 100
            memory = _resident_megabytes(runner.pid)
        with _process(("-c", BARE, url, str(connections))) as bare, connect(url) as watcher:
            if _connections(watcher) != connections:
                raise RuntimeError("the bare process holds another number of connections")
            bare_memory = _resident_megabytes(bare.pid)
    print_table(
        f"An idle runner over {SECONDS:.0f} s, {connections} connections",
        ("", "CPU %", "RSS MB", "RSS MB above bare"),
        [
            ("SQLAlchemy and psycopg alone", "", f"{bare_memory:.1f}", ""),
            ("sa-jobqueue run", f"{percent:.2f}", f"{memory:.1f}", f"{memory - bare_memory:.1f}"),
        ],
    )


def _print_imports() -> None:
    times: dict[str, list[float]] = {"sqlalchemy.orm": [], BASE: [], "sa_jobqueue": []}
    modules: dict[str, set[str]] = {}
    for _ in range(IMPORT_RUNS):
        for module, figures in times.items():
            code = IMPORT.format(module=module)
            output = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
            )
            seconds, *loaded = output.stdout.split()
            figures.append(float(seconds) * 1e3)
            modules[module] = set(loaded)
    ruler = median(times[BASE])
    rows = []
    for module, figures in times.items():
        unwanted = [name for name in UNWANTED if name in modules[module]]
        rows.append(
            (module, spread(figures, ".0f"), f"{median(figures) / ruler:.2f}", ", ".join(unwanted) or "none")
        )
    print_table(
        f"Import, milliseconds, median of {IMPORT_RUNS} (range); unwanted: {', '.join(UNWANTED)}",
        ("", "ms", "ratio", "unwanted modules"),
        rows,
    )


@contextmanager
def _process(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(
                f"the process ended by itself with {process.returncode}: {' '.join(arguments)}"
            )
    finally:
        process.terminate()
        process.communicate()


def _connections(watcher: psycopg.Connection[Any]) -> int:
    """How many others are connected, once that has not changed for two seconds."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < 2 or count < 1:
        ((now,),) = watcher.execute(CONNECTED).fetchall()
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.05)
    return count


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _resident_megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
