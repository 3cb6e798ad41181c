"""Everything at once on the same rows: whatever writes many jobs in one statement comes into nobody's way for good."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from sa_jobqueue.admin import OperatorResult, cancel, redrive, reschedule
from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobRescued, JobSettled, LoopFailed, RowRefused
from sa_jobqueue.outcomes import Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.testing.server import connect
from tests.support.databases import OTHER_SESSIONS
from tests.support.runners import Recorder, drain, running
from tests.support.waiting import wait_until

JOBS, PEOPLE, ROUNDS = 1500, 3, 5
NOW = timedelta(0)
#: JOBS at a time, a sixth of each: due, due tomorrow, held by a runner that is lost, dead, cancelled, done.
FILL = text("""
    INSERT INTO jobqueue_jobs (kind, payload, status, run_at, attempts, max_attempts, lease_token, lease_until,
        leased_by, finished_at)
    SELECT 'work', jsonb_build_object('number', i), status,
        CASE WHEN mod(i, 6) = 1 THEN now() + interval '1 day' ELSE now() END, 1, 20,
        CASE WHEN status = 'running' THEN gen_random_uuid() END,
        CASE WHEN status = 'running' THEN now() - interval '1 hour' END,
        CASE WHEN status = 'running' THEN 'lost' END,
        CASE WHEN status IN ('dead', 'cancelled', 'done') THEN now() END
    FROM generate_series(1, :count) AS i,
        LATERAL (SELECT (ARRAY['ready', 'ready', 'running', 'dead', 'cancelled', 'done'])[1 + mod(i, 6)]) AS s (status)
""")
#: An application that takes its rows as they come.
IN_NO_ORDER = text("""
    WITH picked AS MATERIALIZED (
        SELECT id FROM jobqueue_jobs WHERE status = 'ready' ORDER BY random() LIMIT 200 FOR UPDATE)
    UPDATE jobqueue_jobs SET run_at = now() FROM picked WHERE jobqueue_jobs.id = picked.id
""")
DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
STATUSES = text("SELECT status, count(*) FROM jobqueue_jobs GROUP BY status")


def registry() -> Registry:
    jobs = Registry()

    @jobs.handler("work", retry=fixed(NOW))
    def work(ctx: JobContext, number: int) -> Snooze | None:
        if ctx.attempt == 1 and number % 3 == 0:
            raise ValueError("at first")
        return Snooze(timedelta(milliseconds=1)) if random.random() < 0.2 else None

    return jobs


def deadlocks(url: str) -> int:
    """How many the server has broken in this database; sessions tell their numbers when they end."""
    with connect(url) as connection:
        wait_until(lambda: not connection.execute(OTHER_SESSIONS).fetchall())
        row = connection.execute(str(DEADLOCKS)).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def two_runners(url: str) -> Iterator[list[Recorder]]:
    quick = {
        "lease": timedelta(seconds=1),
        "rescue_interval": timedelta(milliseconds=20),
        "queues": {"default": 4},
    }
    with ExitStack() as stack:
        yield [stack.enter_context(running(registry(), impatient(url), **quick)) for _ in range(2)]


def impatient(url: str) -> URL:
    """Whoever waits for a lock for longer than a second here is told so by an error."""
    return make_url(url).update_query_dict({"options": "-c lock_timeout=1s"})


def troubles(recorders: list[Recorder]) -> list[Any]:
    """All that was refused to the loops, as a whole, for one row or for an outcome."""
    heard = [event for recorder in recorders for event in recorder.events]
    return [
        event
        for event in heard
        if isinstance(event, LoopFailed | RowRefused) or getattr(event, "fault", None)
    ]


def a_person(engine: Engine, seed: int, jobs: int, answered: list[OperatorResult], lost: list[str]) -> None:
    """Cancels, redrives and reschedules in bulk, by ids in any order."""
    dice = random.Random(seed)
    verbs: list[Callable[..., list[OperatorResult]]] = [
        cancel,
        redrive,
        partial(reschedule, delay=NOW),
        partial(reschedule, priority=seed),
    ]
    for _ in range(ROUNDS):
        for verb in dice.sample(verbs, len(verbs)):
            ids = [dice.randint(1, jobs) for _ in range(300)]
            with broken_deadlocks(lost), engine.begin() as connection:
                answered += verb(connection, ids)


def an_application(engine: Engine, lost: list[str]) -> None:
    for _ in range(ROUNDS * 4):
        with broken_deadlocks(lost), engine.begin() as connection:
            connection.execute(IN_NO_ORDER)


@contextmanager
def broken_deadlocks(lost: list[str]) -> Iterator[None]:
    """Keeps the SQLSTATE of a transaction that was given up."""
    try:
        yield
    except OperationalError as error:
        lost.append(getattr(error.orig, "sqlstate", ""))


def fill(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(FILL, {"count": JOBS})


def at_once(*calls: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.slow
def test_nothing_that_writes_many_jobs_deadlocks(engine: Engine, database_url: str) -> None:
    """Claims, settlements, renewals and rescues wait for nobody; people wait in the order of ids.

    So none of them is ever in a deadlock or waits for a second, with an application that locks jobs in any order neither. People and such an
    application may meet in one; the runners go on, and no job is lost.
    """
    database = make_url(database_url).database
    with connect(database_url) as connection:
        connection.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '10ms'".encode())
    unpooled = create_engine(engine.url, poolclass=NullPool)
    answered: list[OperatorResult] = []
    lost: list[str] = []
    application = partial(an_application, unpooled, lost)

    def people(jobs: int) -> list[Callable[[], None]]:
        return [partial(a_person, unpooled, seed, jobs, answered, lost) for seed in range(PEOPLE)]

    fill(unpooled)
    with two_runners(database_url) as recorders:
        at_once(application)
        fill(unpooled)
        at_once(*people(2 * JOBS))
        recorders[0].wait_for(JobSettled)
    assert (deadlocks(database_url), lost) == (0, [])
    assert {answer.landed for answer in answered} == {True, False}
    assert sum(len(recorder.of(JobRescued)) for recorder in recorders) > 0
    assert troubles(recorders) == []

    fill(unpooled)
    with two_runners(database_url) as recorders:
        at_once(*people(3 * JOBS), application, application)
    assert set(lost) <= {"40P01"}
    assert troubles(recorders) == []

    everything = range(1, 3 * JOBS + 1)
    with unpooled.begin() as connection:
        redrive(connection, everything)
        reschedule(connection, everything, delay=NOW)
    drain(registry(), database_url)
    with unpooled.connect() as connection:
        ended: Counter[str] = Counter(dict(map(tuple, connection.execute(STATUSES))))
    assert ended.total() == len(everything)
    assert set(ended) <= {"done", "cancelled", "dead"}
    assert ended["done"] > 0.9 * len(everything)
