"""The database goes away under load and comes back: nothing is lost, nothing runs twice, every loop works again."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobSettled, JobStarted, LoopFailed, LoopRecovered, RunnerStopped
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import Runner
from sa_jobqueue.testing import PostgresServer, StopMode, start_postgres
from tests.support.databases import FAST, install
from tests.support.runners import LEDGER, Recorder, RunnerProcess, add, ledger, process, settings
from tests.support.waiting import PATIENCE, wait_until

JOBS = 300
LOOPS = {"dispatch", "settle", "leases", "maintenance", "listen"}


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that these tests may halt."""
    with start_postgres(settings=FAST) as server:
        install(server.url())
        yield server


@pytest.fixture
def own_engine(own_server: PostgresServer) -> Engine:
    """Connections that survive nothing, to an empty job table."""
    own_server.start()
    engine = create_engine(own_server.url(), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE jobqueue_jobs"))
    return engine


class _Load:
    """Jobs whose runs are counted here, past every database; one of them is in its handler all the time."""

    def __init__(self, engine: Engine) -> None:
        self.runs: Counter[int] = Counter()
        self.gate = threading.Event()
        self._engine = engine
        self.registry = Registry()
        self.registry.handler("short")(self._short)
        self.registry.handler("long")(self._long)
        with engine.begin() as connection:
            self.ids = [add(connection, "long")]
        self.add(1)

    def add(self, count: int) -> None:
        """Short jobs, each to be tried once."""
        with self._engine.begin() as connection:
            rows = connection.execute(
                text(
                    "INSERT INTO jobqueue_jobs (kind, max_attempts)"
                    f" SELECT 'short', 1 FROM generate_series(1, {count}) RETURNING id"
                )
            )
            self.ids += rows.scalars()

    def _short(self, ctx: JobContext) -> None:
        self.runs[ctx.id] += 1
        self.gate.wait(0.02)

    def _long(self, ctx: JobContext) -> None:
        self.runs[ctx.id] += 1
        self.gate.wait(PATIENCE)

    def check(self, recorder: Recorder) -> None:
        """Every job is done with one run, one attempt that counts and one word about its completion."""
        completed = Counter(it.job_id for it in recorder.of(JobSettled) if it.verb == "complete")
        assert completed == dict.fromkeys(self.ids, 1)
        with self._engine.connect() as connection:
            query = text("SELECT status, attempts - returned, count(*) FROM jobqueue_jobs GROUP BY 1, 2")
            assert [tuple(row) for row in connection.execute(query)] == [("done", 1, len(self.ids))]
        assert self.runs == dict.fromkeys(self.ids, 1)


@contextmanager
def _under_load(engine: Engine, server: PostgresServer) -> Iterator[tuple[_Load, Recorder]]:
    """A runner with work and with all its connections, until each loop had its trouble and all work is done."""
    load, recorder = _Load(engine), Recorder()
    quick = settings(
        queues={"default": 4}, lease=timedelta(seconds=4.5), rescue_interval=timedelta(milliseconds=100)
    )
    with Runner(load.registry, server.url(), quick, subscribers=[recorder]):
        wait_until(lambda: _sessions(engine) == len(LOOPS), what="all connections")
        load.add(JOBS)
        recorder.wait_for(JobSettled, count=40)
        yield load, recorder
        wait_until(lambda: {event.loop for event in recorder.of(LoopRecovered)} == LOOPS)
        recorder.wait_for(JobSettled, count=len(load.ids) - 1)
        load.gate.set()
        recorder.wait_for(JobSettled, count=len(load.ids))


def _sessions(engine: Engine) -> int:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %'")
    with engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def _check_loops(recorder: Recorder) -> None:
    """Each loop told of its trouble once, and of its end once."""
    for kind in (LoopFailed, LoopRecovered):
        assert Counter(event.loop for event in recorder.of(kind)) == dict.fromkeys(LOOPS, 1)


def test_all_backends_are_terminated(own_engine: Engine, own_server: PostgresServer) -> None:
    """Once, in the middle of work: answers are lost, connections are made anew, and each job still runs once."""
    with _under_load(own_engine, own_server) as (load, recorder):
        ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %'"
        with own_engine.begin() as connection:
            assert connection.execute(text(ours)).scalars().all() == [True] * len(LOOPS)
    load.check(recorder)
    _check_loops(recorder)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_restarts(own_engine: Engine, own_server: PostgresServer, mode: StopMode) -> None:
    """Shut down in order or crashed: what was committed is there, and what was not is done again."""
    with _under_load(own_engine, own_server) as (load, recorder):
        own_server.restart(mode)
    load.check(recorder)
    _check_loops(recorder)


@pytest.mark.slow
def test_an_outage_costs_a_process_next_to_nothing(own_engine: Engine, own_server: PostgresServer) -> None:
    """A word of each loop when it begins and when it is over, hardly any time of a processor, and no attempt.

    Soon after it all of them work, and the job that was running has kept its lease.
    """
    with own_engine.begin() as connection:
        connection.execute(text(LEDGER))
        napping = add(connection, "nap", '{"seconds": 9}')
        add(connection, "quick")
    options = ("--queues", "default:2,other:2", "--lease", "10s", "--prune-interval", "200ms")
    with process("tests.apps.ledger:jobs", own_server.url(), *options, "--log-format", "json") as runner:
        wait_until(lambda: len(ledger(own_engine)) == 2, what="both jobs")
        wait_until(lambda: _sessions(own_engine) == len(LOOPS), what="all connections")
        own_server.halt("immediate")
        others = LOOPS - {"settle"}  # which notices when it has something to write
        wait_until(lambda: {loop for _, loop in _told(runner)} >= others, what="the trouble of all")
        began, used = time.monotonic(), _seconds_of_processor(runner.pid)
        threading.Event().wait(3.0)  # it lasts for a while
        share = (_seconds_of_processor(runner.pid) - used) / (time.monotonic() - began)
        assert Counter(_told(runner)) == {("error", loop): 1 for _, loop in _told(runner)}
        own_server.start()
        with own_engine.begin() as connection:
            brief = [add(connection, "quick", queue=queue) for queue in ("default", "other")]
            old = add(connection, "quick", status="done", finished_at="2020-01-01T00:00:00Z")
        done = "SELECT count(*) FROM jobqueue_jobs WHERE status = 'done' AND attempts = 1 AND id = ANY(:ids)"
        with own_engine.connect() as watcher:
            watcher = watcher.execution_options(isolation_level="AUTOCOMMIT")
            wait_until(lambda: watcher.scalar(text(done), {"ids": brief}) == 2, timeout=15)
            gone = text("SELECT NOT EXISTS (SELECT FROM jobqueue_jobs WHERE id = :id)")
            wait_until(lambda: watcher.scalar(gone, {"id": old}), timeout=15)
            wait_until(lambda: watcher.scalar(text(done), {"ids": [napping]}) == 1)
        wait_until(lambda: len(_told(runner)) == 2 * len(LOOPS), what="the end of the trouble")
        told = _told(runner)
    assert share < 0.1
    assert Counter(told) == {(level, loop): 1 for level in ("error", "info") for loop in LOOPS}
    assert [entry.note for entry in ledger(own_engine) if entry.job_id == napping] == ["begin", "end"]


def _told(runner: RunnerProcess) -> list[tuple[str, str]]:
    """Level and loop of each line about the trouble of one."""
    lines = [json.loads(line) for line in runner.text.splitlines()]
    return [(line["level"], line["loop"]) for line in lines if "loop" in line]


def _seconds_of_processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_stop_while_the_database_is_away(
    own_engine: Engine, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in time and leaves no thread behind that would write hours later; the next start finishes the work."""
    monkeypatch.setattr("sa_jobqueue.runner.ending.LAST_WRITES", 0.5)
    jobs, gate = Registry(), threading.Event()
    jobs.handler("work", retry=fixed(timedelta(0)))(lambda: gate.wait(PATIENCE))
    with own_engine.begin() as connection:
        connection.execute(text("INSERT INTO jobqueue_jobs (kind) SELECT 'work' FROM generate_series(1, 5)"))
    recorder = Recorder()
    short = settings(lease=timedelta(seconds=1), grace=timedelta(milliseconds=500))
    runner = Runner(jobs, own_server.url(), short, subscribers=[recorder])
    runner.start()
    recorder.wait_for(JobStarted, count=5)
    own_server.halt("immediate")
    gate.set()
    runner.stop()
    assert [event.exit_code for event in recorder.of(RunnerStopped)] == [7]
    wait_until(lambda: not any(thread.name.startswith("sa_jobqueue") for thread in threading.enumerate()))
    own_server.start()
    with runner:
        recorder.wait_for(JobSettled, count=5)
    with own_engine.connect() as connection:
        query = text("SELECT status, count(*) FROM jobqueue_jobs GROUP BY 1")
        assert [tuple(row) for row in connection.execute(query)] == [("done", 5)]
