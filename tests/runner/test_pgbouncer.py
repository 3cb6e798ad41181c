"""PgBouncer in transaction mode, two sessions for everybody: all that a runner and its clients do works through it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_jobqueue import enqueue
from sa_jobqueue.admin import cancel, list_jobs, prune, redrive, reschedule, stats
from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobRescued, JobSettled, JobsPruned, WakeUpFailed
from sa_jobqueue.outcomes import Retry
from sa_jobqueue.registry import Registry
from sa_jobqueue.retention import Retention
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.ear import PROBE_CHANNEL
from tests.support.jobs import add_job, add_running
from tests.support.pgbouncer import PgBouncer, pgbouncer
from tests.support.runners import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("pgbouncer")

JOBS, RUNNERS = 1000, 4
HOUR = timedelta(hours=1)
SOON = timedelta(0)
#: What PgBouncer itself sets on its sessions, for clients that told it at their start, and what asyncpg does.
PASSED_ON = (
    "application_name",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "jit",
)


@pytest.fixture
def bouncer(database_url: str) -> Iterator[PgBouncer]:
    """One that keeps two sessions on the server."""
    with pgbouncer(database_url) as running_one:
        yield running_one


@pytest.fixture
def pooled(bouncer: PgBouncer) -> Iterator[Engine]:
    """An application's engine as the README says."""
    engine = create_engine(bouncer.url, connect_args={"prepare_threshold": None})
    yield engine
    engine.dispose()


class Work:
    """Handlers that count their runs in this process; every tenth job is tried twice."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.registry = Registry()
        self.registry.handler("count")(self._count)
        self._lock = threading.Lock()

    def _count(self, ctx: JobContext, number: int) -> Retry | None:
        with self._lock:
            self.runs[number] += 1
        return Retry(after=SOON) if number % 10 == 0 and ctx.attempt == 1 else None


def _settled(engine: Engine) -> int:
    with engine.connect() as connection:
        query = text("SELECT count(*) FROM jobqueue_jobs WHERE kind = 'count' AND status = 'done'")
        return int(connection.execute(query).scalar_one())


def _leftovers(bouncer: PgBouncer) -> list[object]:
    """What outlives a transaction on the pooler's sessions: locks, statements, listeners, settings."""
    names = ", ".join(f"'{name}'" for name in PASSED_ON)
    return [
        *bouncer.ask_every_session("SELECT locktype FROM pg_locks WHERE locktype = 'advisory'"),
        *bouncer.ask_every_session("SELECT name FROM pg_prepared_statements"),
        # The probe's channel may stay: it is the pooler's to say which session is asked to forget it.
        *bouncer.ask_every_session(f"SELECT pg_listening_channels() EXCEPT SELECT '{PROBE_CHANNEL}'"),
        *bouncer.ask_every_session(
            f"SELECT name, setting FROM pg_settings WHERE source = 'session' AND name NOT IN ({names})"
        ),
        *bouncer.ask_every_session("SELECT relname FROM pg_class WHERE relpersistence = 't'"),
    ]


def test_a_thousand_jobs_run_exactly_once(engine: Engine, pooled: Engine, bouncer: PgBouncer) -> None:
    """Enqueued, claimed, renewed, retried, rescued, completed and pruned through it, by four runners."""
    work, recorders = Work(), []
    with ExitStack() as stack:
        for number in range(RUNNERS):
            recorder = stack.enter_context(
                running(
                    work.registry,
                    bouncer.url,
                    name=f"runner-{number}",
                    lease=timedelta(seconds=4),
                    retention=Retention(cancelled=timedelta(hours=1)),
                    prune_interval=timedelta(milliseconds=50),
                )
            )
            recorders.append(recorder)
        old = add_job(
            engine, status="cancelled", reason="cancelled", finished_at=text("now() - interval '1 day'")
        )
        lost = add_running(engine, uuid4(), lease=-HOUR, kind="count", payload={"number": JOBS})
        for first in range(0, JOBS, 50):
            with Session(pooled) as session, session.begin():
                session.add_all(enqueue("count", {"number": first + each}) for each in range(50))
        wait_until(lambda: _settled(engine) == JOBS + 1, what="all jobs")
        wait_until(lambda: sum(len(each.of(JobsPruned)) for each in recorders) > 0, what="the pruning")
    assert work.runs == {number: 2 if number % 10 == 0 and number < JOBS else 1 for number in range(JOBS + 1)}
    assert [it.job_id for each in recorders for it in each.of(JobRescued)] == [lost]
    with engine.connect() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM jobqueue_jobs WHERE id = {old}")).scalar() == 0
    assert _leftovers(bouncer) == []


def test_handlers_complete_their_jobs_in_transactions_of_their_own(
    engine: Engine, pooled: Engine, bouncer: PgBouncer
) -> None:
    """On sessions of the runner's making, in threads and on an event loop, often enough that a driver would prepare."""
    jobs = Registry()

    @jobs.handler("thread")
    def in_thread(ctx: JobContext) -> None:
        with ctx.complete() as session:
            session.execute(text("INSERT INTO written VALUES (:job)"), {"job": ctx.id})

    @jobs.handler("loop", queue="loop")
    async def on_loop(ctx: JobContext) -> None:
        async with ctx.complete() as session:
            await session.execute(text("INSERT INTO written VALUES (:job)"), {"job": ctx.id})

    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE written (job bigint PRIMARY KEY)"))
    with Session(pooled) as session, session.begin():
        session.add_all(enqueue(call) for _ in range(100) for call in (in_thread.call(), on_loop.call()))
    with running(jobs, bouncer.url, queues={"default": 4, "loop": 4}) as recorder:
        recorder.wait_for(JobSettled, count=200)
    assert {event.attempt for event in recorder.of(JobSettled)} == {1}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM written")).scalar_one() == 200
    assert _leftovers(bouncer) == []


def test_the_verbs_of_operators(engine: Engine, pooled: Engine, bouncer: PgBouncer) -> None:
    """Each in the transaction of an ordinary session, often enough that a driver would prepare its statements."""
    for _ in range(8):
        job = add_job(engine, kind="nobody")
        with Session(pooled) as session, session.begin():
            assert [result.landed for result in reschedule(session, [job], delay=HOUR)] == [True]
            assert [result.landed for result in cancel(session, [job])] == [True]
            assert [result.landed for result in redrive(session, [job])] == [True]
        with Session(pooled) as session, session.begin():
            assert [summary.id for summary in list_jobs(session, kinds=["nobody"]).jobs] == [job]
            assert stats(session).queues
            cancel(session, [job])
        with Session(pooled) as session, session.begin():
            assert prune(session, status=JobStatus.CANCELLED, older_than=SOON).count == 1
    assert _leftovers(bouncer) == []


def test_asyncpg_enqueues(engine: Engine, bouncer: PgBouncer) -> None:
    """With the arguments that the README gives its statements have no names, which would collide in a session or stay."""

    async def main() -> None:
        pooled = create_async_engine(
            bouncer.for_asyncpg(),
            connect_args={"statement_cache_size": 0, "prepared_statement_cache_size": 0},
        )

        async def enqueue_some(first: int) -> None:
            for number in range(first, first + 10):
                async with AsyncSession(pooled) as session, session.begin():
                    session.add(enqueue("count", {"number": number}, idempotency_key=f"job {number}"))

        await asyncio.gather(*(enqueue_some(first) for first in range(0, 100, 10)))
        await pooled.dispose()

    asyncio.run(main())
    assert _leftovers(bouncer) == []
    work = Work()
    with running(work.registry, bouncer.url):
        wait_until(lambda: _settled(engine) == 100, what="all jobs")
    assert set(work.runs) == set(range(100))


def test_listening_through_it_is_noticed(engine: Engine, pooled: Engine, bouncer: PgBouncer) -> None:
    """LISTEN succeeds there and nothing ever arrives: one warning, nobody is told that it waits, and polling works."""
    work = Work()
    with running(work.registry, bouncer.url) as recorder:
        recorder.wait_for(WakeUpFailed)
        for number in range(1, 6):
            with Session(pooled) as session, session.begin():
                session.add(enqueue("count", {"number": number}))
            recorder.wait_for(JobSettled, count=number)
        assert [event.cause for event in recorder.of(WakeUpFailed)] == ["unheard"]
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM jobqueue_idle")).scalar_one() == 0
    assert _leftovers(bouncer) == []


def test_a_direct_address_wakes(
    engine: Engine, database_url: str, pooled: Engine, bouncer: PgBouncer
) -> None:
    """The runner works through the pooler and listens past it; nothing here is found by polling."""
    work = Work()
    with running(work.registry, bouncer.url, poll_interval=HOUR, listen_url=database_url) as recorder:
        _wait_until_idle(engine)
        for number in range(1, 31):
            with Session(pooled) as session, session.begin():
                session.add(enqueue("count", {"number": number + JOBS}))
            recorder.wait_for(JobSettled, count=number)
        assert recorder.of(WakeUpFailed) == []
    assert _leftovers(bouncer) == []


def _wait_until_idle(engine: Engine) -> None:
    def waiting() -> bool:
        with engine.connect() as connection:
            return connection.execute(text("SELECT count(*) FROM jobqueue_idle")).scalar_one() == 1

    wait_until(waiting, what="a runner that waits")


@pytest.mark.needs("pgbouncer_prepares")
def test_it_may_keep_prepared_statements(engine: Engine, database_url: str) -> None:
    """From 1.21 on PgBouncer can: then a runner works the same, and an engine that prepares does as well."""
    work = Work()
    with pgbouncer(database_url, max_prepared_statements=50) as bouncer:
        preparing = create_engine(bouncer.url, connect_args={"prepare_threshold": 1})
        with running(work.registry, bouncer.url):
            for number in range(50):
                with Session(preparing) as session, session.begin():
                    session.add(enqueue("count", {"number": number}))
            wait_until(lambda: _settled(engine) == 50, what="all jobs")
        preparing.dispose()
