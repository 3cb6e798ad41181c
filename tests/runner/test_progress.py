"""`ctx.progress()`: what a running handler says, seen in its row while it runs, and what is left of it afterwards."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import admin
from sa_jobqueue.context import JobContext
from sa_jobqueue.events import CancelRequested, JobSettled, JobStarted
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from tests.support.runners import add, row, running, wait_for_row
from tests.support.waiting import PATIENCE, wait_until

#: So long that no renewal comes in between.
LEASE = timedelta(minutes=10)


def _told(progress: Any) -> tuple[Any, Any, Any]:
    return progress["fraction"], progress["text"], progress["attempt"]


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "asyncio"])
def test_progress_is_seen_while_the_handler_runs(engine: Engine, database_url: str, is_async: bool) -> None:
    """Within a moment and long before a renewal; a later report follows, and many in between count as one."""
    jobs, steps = Registry(), [threading.Event() for _ in range(2)]

    def work(ctx: JobContext) -> None:
        ctx.progress(0.4, "page 12")
        assert steps[0].wait(PATIENCE)
        for page in range(100_000):
            ctx.progress(page / 100_000, f"page {page}")
        ctx.progress(0.7)
        assert steps[1].wait(PATIENCE)

    async def work_async(ctx: JobContext) -> None:
        work(ctx)  # blocks the loop: the row hears of it all the same

    jobs.handler("work")(work_async if is_async else work)
    with engine.begin() as connection:
        job = add(connection, "work")
    with running(jobs, database_url, lease=LEASE):
        first = wait_for_row(engine, job, lambda now: now.progress is not None)
        assert _told(first.progress) == (0.4, "page 12", 1)
        steps[0].set()
        second = wait_for_row(engine, job, lambda now: now.progress["fraction"] == 0.7)
        assert _told(second.progress) == (0.7, None, 1)
        assert (second.status, second.lease_until) == ("running", first.lease_until)
        steps[1].set()
        wait_for_row(engine, job, lambda now: now.status == "done")


def test_the_last_word_before_the_end_is_kept(engine: Engine, database_url: str) -> None:
    """What a handler says just before it ends stays with the job, whatever its end, and through a retry."""
    jobs = Registry()

    @jobs.handler("work", retry=fixed(timedelta(0)))
    def work(ctx: JobContext, fails: bool) -> None:
        if ctx.attempt == 1:
            ctx.progress(0.5, "before")
            ctx.progress(0.9, "at the end")
            if fails:
                raise ValueError("no")
        # A second attempt says nothing: what the first one said is still there, under its number.

    with engine.begin() as connection:
        done, failed = add(connection, "work", '{"fails": false}'), add(connection, "work", '{"fails": true}')
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobSettled, count=3)
    for job, attempts in ((done, 1), (failed, 2)):
        end = row(engine, job)
        assert (end.status, end.attempts) == ("done", attempts)
        assert _told(end.progress) == (0.9, "at the end", 1)
    with engine.connect() as connection:
        details = admin.get_job(connection, failed)
    assert details is not None
    assert details.progress is not None
    assert (details.progress.attempt, details.progress.at is None) == (1, False)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_the_last_word_before_a_completion_is_kept(engine: Engine, database_url: str, level: str) -> None:
    """Its token ends with the handler's own commit: what was said before that, within the block too, lands with it."""
    jobs = Registry()
    sessions = sessionmaker(engine.execution_options(isolation_level=level))

    @jobs.handler("before")
    def before(ctx: JobContext) -> None:
        ctx.progress(0.5)
        ctx.progress(0.9, "at the end")
        with ctx.complete(sessions):
            pass

    @jobs.handler("within")
    def within(ctx: JobContext) -> None:
        with ctx.complete(sessions) as session:
            session.execute(text("SELECT 1"))
            ctx.progress(0.5)
            ctx.progress(0.9, "at the end")

    @jobs.handler("joined")
    async def joined(ctx: JobContext) -> None:
        async with AsyncSession(engine_async) as session:
            await ctx.complete_in(session)
            ctx.progress(0.5)
            ctx.progress(0.9, "at the end")
            await session.commit()
        await engine_async.dispose()

    engine_async = create_async_engine(database_url, isolation_level=level, poolclass=NullPool)
    with engine.begin() as connection:
        added = [add(connection, kind) for kind in ("before", "within", "joined")]
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobSettled, count=3)
    for job in added:
        end = row(engine, job)
        assert (end.status, _told(end.progress)) == ("done", (0.9, "at the end", 1))


def test_the_last_word_of_a_completion_that_fails_is_kept(engine: Engine, database_url: str) -> None:
    """A snapshot kept its row from being written: it is written as soon as that is gone."""
    jobs, gate = Registry(), threading.Event()
    snapshots = sessionmaker(engine.execution_options(isolation_level="REPEATABLE READ"))

    @jobs.handler("work", retry=fixed(timedelta(hours=1)))
    def work(ctx: JobContext) -> None:
        with ctx.complete(snapshots) as session:
            session.execute(text("SELECT 1"))
            ctx.progress(0.9, "in vain")
            gate.wait(PATIENCE)
            raise ValueError("no")

    @jobs.handler("neighbour")
    def neighbour(ctx: JobContext) -> None:
        """Its own progress, reported later, is seen: so the keeper has had both in its hands."""
        ctx.progress(0.4)
        wait_until(lambda: row(engine, ctx.id).progress is not None)
        gate.set()

    with engine.begin() as connection:
        job = add(connection, "work")
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted)
        with engine.begin() as connection:
            add(connection, "neighbour")
        recorder.wait_for(JobSettled, count=2)
    end = row(engine, job)
    assert (end.status, _told(end.progress)) == ("ready", (0.9, "in vain", 1))


def test_a_locked_row_delays_its_own_progress_alone(engine: Engine, database_url: str) -> None:
    """An application holds one job: its neighbour's progress is written meanwhile, its own once the lock is gone."""
    jobs, lines, gate = Registry(), threading.Barrier(3), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        lines.wait(PATIENCE)
        ctx.progress(0.4)
        assert gate.wait(PATIENCE)

    with engine.begin() as connection:
        held, neighbour = add(connection, "work"), add(connection, "work")
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted, count=2)
        with engine.begin() as application:
            application.execute(text("SELECT * FROM jobqueue_jobs WHERE id = :id FOR UPDATE"), {"id": held})
            lines.wait(PATIENCE)
            wait_for_row(engine, neighbour, lambda now: now.progress is not None)
            assert row(engine, held).progress is None
        wait_for_row(engine, held, lambda now: now.progress is not None)
        gate.set()
        recorder.wait_for(JobSettled, count=2)


def test_a_refused_report_costs_neither_lease_nor_outcome(engine: Engine, database_url: str) -> None:
    """Somebody's trigger lets nobody write progress: renewals go on, and the job is done."""
    jobs, gate, lease = Registry(), threading.Event(), timedelta(seconds=2)

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        ctx.progress(0.4)
        assert gate.wait(PATIENCE)
        ctx.progress(0.9)

    with engine.begin() as connection:
        job = add(connection, "work")
        connection.exec_driver_sql(
            "CREATE FUNCTION no_progress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF new.progress IS NOT NULL THEN RAISE 'no'; END IF; RETURN new; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER no_progress BEFORE UPDATE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION no_progress()"
        )
    with running(jobs, database_url, lease=lease) as recorder:
        recorder.wait_for(JobStarted)
        claimed_until = row(engine, job).lease_until
        wait_for_row(engine, job, lambda now: now.lease_until - claimed_until > 2 * lease)
        gate.set()
        recorder.wait_for(JobSettled)
    done = row(engine, job)
    assert (done.status, done.attempts, done.progress) == ("done", 1, None)


def test_who_reports_hears_of_a_cancellation_at_once(engine: Engine, database_url: str) -> None:
    """The answer to a report brings the request, minutes before the next renewal would."""
    jobs = Registry()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        def asked() -> bool:
            ctx.progress(0.4)
            return ctx.cancel_requested

        wait_until(asked)
        ctx.raise_if_cancelled()

    with engine.begin() as connection:
        job = add(connection, "work")
    with running(jobs, database_url, lease=LEASE) as recorder:
        recorder.wait_for(JobStarted)
        with engine.begin() as connection:
            admin.cancel(connection, [job])
        recorder.wait_for(CancelRequested)
        recorder.wait_for(JobSettled)
    assert row(engine, job).status == "cancelled"
