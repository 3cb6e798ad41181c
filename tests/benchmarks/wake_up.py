"""What does the trigger of the wake-up cost those who add jobs, one to a transaction?

The same INSERT by 1, 8 and 32 clients: without the trigger, with it while all runners are busy, while one waits, and when
every commit notifies. Each client is a connection in a thread, a few of them to a process, as the interpreter would else
be what is measured. Ratios are those of one round, in which everybody has had a turn.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

import psycopg

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.benchmarks.measure import database, in_turns, median, print_table, spread

CLIENTS, RUNS, SECONDS, PROCESSES = (1, 8, 32), 5, 3.0, 4
INSERT = "INSERT INTO jobqueue_jobs (kind, payload) VALUES ('noop', '{\"number\": 1}')"
ON, OFF = (f"ALTER TABLE jobqueue_jobs {verb} TRIGGER jobqueue_wake" for verb in ("ENABLE", "DISABLE"))
WAIT = "INSERT INTO jobqueue_idle VALUES ('runner', now() + interval '1 hour')"
BARE = "no trigger"
#: What is done to the tables, and what the clients' sessions set.
VARIANTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    BARE: ((OFF,), "when-idle"),
    "all runners busy": ((ON,), "when-idle"),
    "off": ((ON, WAIT), "off"),
    "one runner waits": ((ON, WAIT), "when-idle"),
    "always": ((ON,), "always"),
}


def run(server: PostgresServer) -> None:
    """Print commits per second and their ratio to those without trigger, for each number of clients."""
    with database(server) as url:
        for clients in CLIENTS:
            contestants = {name: _contestant(url, clients, *variant) for name, variant in VARIANTS.items()}
            figures = in_turns(contestants, runs=RUNS)
            rows = []
            for name, found in figures.items():
                ratios = [mine / bare for mine, bare in zip(found, figures[BARE], strict=True)]
                rows.append((name, spread(found), f"{median(ratios):.2f}"))
            print_table(
                f"Commits per second that add one job each, {clients} clients, median of {RUNS} (range)",
                ("", "commits/s", "ratio"),
                rows,
            )


def _contestant(url: str, clients: int, prepare: tuple[str, ...], policy: str) -> Callable[[], float]:
    def measure() -> float:
        with connect(url) as connection:
            for statement in ("TRUNCATE jobqueue_jobs, jobqueue_idle", *prepare, "CHECKPOINT"):
                connection.execute(statement.encode())
        return _commits(url, clients, policy) / SECONDS

    return measure


def _commits(url: str, clients: int, policy: str) -> int:
    """How many all clients make in the time, which begins for all of them when all are connected."""
    processes = min(PROCESSES, clients)
    command = [sys.executable, "-m", "tests.benchmarks.wake_up", url, str(clients // processes), policy]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a client could not start: its error stands above")
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return sum(int(process.communicate()[0]) for process in running)
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _clients(url: str, number: int, policy: str) -> None:
    """One process of clients: says when they are connected, waits for the word, says how often they have committed."""
    connections = [connect(url) for _ in range(number)]
    for connection in connections:
        connection.execute("SELECT set_config('sa_jobqueue.notify', %s, false)", [policy])
    counts: list[int] = []
    print("ready", flush=True)
    sys.stdin.readline()
    ends = time.monotonic() + SECONDS

    def insert(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        count = 0
        while time.monotonic() < ends:
            connection.execute(INSERT, prepare=True)
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=insert, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    print(sum(counts))


if __name__ == "__main__":
    _clients(sys.argv[1], int(sys.argv[2]), sys.argv[3])
