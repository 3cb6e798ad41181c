"""What the benchmarks share: a durable server, fresh databases, runs in turns, and tables of medians."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import NullPool, create_engine

from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.testing import PostgresServer, start_postgres
from sa_jobqueue.testing.server import connect

#: Commits are durable, as in production; only the sizes are those of a server that is meant to be used.
SETTINGS = {"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "4GB", "max_connections": "100"}
Figure = TypeVar("Figure")
_NUMBERS = itertools.count(1)


@contextmanager
def durable_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of our own with fsync on. Names itself."""
    with start_postgres(settings=SETTINGS, tcp=True) as server:
        print(f"server: {server.description}, fsync on", flush=True)
        yield server


@contextmanager
def database(server: PostgresServer, *, queue: bool = True) -> Iterator[str]:
    """The URL of a fresh database, with the queue's tables unless told otherwise; by TCP, as most applications connect."""
    name = f"bench_{next(_NUMBERS)}"
    server.create_database(name)
    try:
        url = server.url(name, tcp=True)
        if queue:
            engine = create_engine(url, poolclass=NullPool)
            with engine.begin() as connection:
                migrate_jobqueue(Operations(MigrationContext.configure(connection)), 0, LATEST)
        yield url
    finally:
        server.drop_database(name)


def calm_down(url: str) -> None:
    """Statistics and a checkpoint, so that neither happens while the clock runs."""
    with connect(url) as connection:
        connection.execute("ANALYZE")
        connection.execute("CHECKPOINT")


def in_turns(contestants: Mapping[str, Callable[[], Figure]], *, runs: int) -> dict[str, list[Figure]]:
    """Measure A B A B ..., so that a slow minute of the machine hits everybody; the order changes with every round."""
    figures: dict[str, list[Figure]] = {name: [] for name in contestants}
    for turn in range(runs):
        names = list(contestants)
        for name in names if turn % 2 == 0 else reversed(names):
            figures[name].append(contestants[name]())
    return figures


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people: the first column to the left, figures to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}")
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Median and range, for example "12,904 (11,046 to 19,739)"."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
