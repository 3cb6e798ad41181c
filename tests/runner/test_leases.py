"""Leases of a living runner: kept for as long as the handler runs, and nobody's lock spoils more than its own row."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobRescued, JobSettled, JobStarted, SettleDelayed
from sa_jobqueue.registry import Registry
from tests.support.runners import LEDGER, add, ledger, process, row, running
from tests.support.waiting import PATIENCE, wait_until

LEASE = timedelta(seconds=1.5)
REMAINING = text(
    "SELECT min(lease_until - clock_timestamp()) FROM jobqueue_jobs WHERE status = 'running' AND id <> :but"
)


def _remaining(engine: Engine, *, but: int = 0) -> timedelta | None:
    """The shortest lease of a running job, as the database sees it."""
    with engine.connect() as connection:
        left: timedelta | None = connection.execute(REMAINING, {"but": but}).scalar_one()
    return left


def test_a_handler_much_longer_than_the_lease_runs_once(engine: Engine, database_url: str) -> None:
    """Three leases long, by the command and by the API, both with rescue: it never runs out, and nobody runs it again."""
    jobs, gate, runs = Registry(), threading.Event(), list[int]()

    @jobs.handler("nap", queue="called")
    def nap(ctx: JobContext) -> None:
        runs.append(ctx.id)
        assert gate.wait(PATIENCE)

    lease = timedelta(seconds=3)
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        seconds = 3.5 * lease.total_seconds()
        commanded = add(connection, "nap", f'{{"seconds": {seconds}}}')
        called = add(connection, "nap", queue="called")
    options = ("--queues", "default:1", "--lease", "3s")
    with (
        process("tests.apps.ledger:jobs", database_url, *options) as command,
        running(jobs, database_url, queues={"called": 1}, lease=lease) as recorder,
    ):
        both = (commanded, called)
        wait_until(lambda: {row(engine, job).status for job in both} == {"running"})
        claimed_until = {job: row(engine, job).lease_until for job in both}
        sampled = list[timedelta]()

        def renewed_for_three_leases(job: int) -> bool:
            left = _remaining(engine)
            if left is not None:
                sampled.append(left)
            now = row(engine, job)
            return now.status == "done" or now.lease_until - claimed_until[job] > 3 * lease

        wait_until(lambda: renewed_for_three_leases(called))
        wait_until(lambda: renewed_for_three_leases(commanded))
        gate.set()
        recorder.wait_for(JobSettled)
        wait_until(lambda: row(engine, commanded).status == "done")
        assert recorder.of(JobRescued) == []
        assert "rescued" not in command.text
    assert min(sampled) > lease / 3
    assert runs == [called]
    assert [entry.note for entry in ledger(engine)] == ["begin", "end"]
    assert {(row(engine, job).status, row(engine, job).attempts) for job in both} == {("done", 1)}


def test_a_locked_row_delays_itself_alone(engine: Engine, database_url: str) -> None:
    """An application holds one running job beyond its lease: its neighbours are renewed and settled meanwhile."""
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1
        assert gate.wait(PATIENCE)

    with engine.begin() as connection:
        held, *neighbours = [add(connection, "work") for _ in range(5)]
    with running(jobs, database_url, lease=LEASE, rescue_interval=timedelta(hours=1)) as recorder:
        recorder.wait_for(JobStarted, count=5)
        with engine.begin() as application:
            application.execute(text("SELECT * FROM jobqueue_jobs WHERE id = :id FOR UPDATE"), {"id": held})
            past = text("SELECT lease_until < clock_timestamp() FROM jobqueue_jobs WHERE id = :id")
            with engine.connect() as watcher:
                watcher = watcher.execution_options(isolation_level="AUTOCOMMIT")
                wait_until(lambda: watcher.scalar(past, {"id": held}), what="the held lease to be past")
            left = _remaining(engine, but=held)
            assert left is not None
            assert left > LEASE / 3
            gate.set()
            recorder.wait_for(JobSettled, count=4)
            assert {settled.job_id for settled in recorder.of(JobSettled)} == set(neighbours)
            # Tried again and again behind the lock, with new work finished in between.
            wait_until(lambda: len(recorder.of(SettleDelayed)) >= 3)
            with engine.begin() as connection:
                late = add(connection, "work")
            wait_until(lambda: row(engine, late).status == "done")
            delays = [event.retry_in for event in recorder.of(SettleDelayed)]
            assert {event.job_id for event in recorder.of(SettleDelayed)} == {held}
            assert delays == sorted(delays)
        recorder.wait_for(JobSettled, count=6)
    assert row(engine, held).status == "done"
    assert runs == dict.fromkeys([held, *neighbours, late], 1)
