"""Which jobs a runner takes: its queues within their limits, the kinds it knows, and nothing else."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.events import JobRescued, JobSettled, JobStarted, UnknownKinds
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner
from tests.support.runners import Recorder, add, drain, row, running, settings
from tests.support.waiting import PATIENCE, wait_until


def _claims(engine: Engine) -> int:
    """Claim statements so far, counted by the server: calls of a trigger that fires before each."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT last_value FROM claims")).scalar_one())


def test_unknown_kinds_are_left_alone_and_told(engine: Engine, database_url: str) -> None:
    """An old runner neither runs nor spoils jobs of new kinds; it says that they are there."""
    old = Registry()
    old.handler("a")(lambda: None)
    with engine.begin() as connection:
        unknown = [add(connection, "b") for _ in range(10)]
        orphan = add(
            connection,
            "b",
            status="running",
            attempts=1,
            lease_token="00000000-0000-0000-0000-000000000001",
            lease_until="2020-01-01T00:00:00Z",
        )
        known = [add(connection, "a") for _ in range(20)]
        connection.execute(text("CREATE SEQUENCE claims"))
        connection.execute(
            text(
                "CREATE FUNCTION count_claim() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN PERFORM nextval('claims'); RETURN NULL; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER claimed BEFORE UPDATE OF leased_by ON jobqueue_jobs"
                " FOR EACH STATEMENT EXECUTE FUNCTION count_claim()"
            )
        )
    with running(
        old, database_url, poll_interval=timedelta(seconds=5), lease=timedelta(seconds=1)
    ) as recorder:
        recorder.wait_for(JobSettled, count=20)
        claims = _claims(engine)
        (told, *_) = recorder.wait_for(UnknownKinds)
        (rescued, *_) = recorder.wait_for(JobRescued)
    assert told.kinds == {"b": 10}
    assert (rescued.job_id, rescued.status) == (orphan, "ready")
    # A few looks, more and more seldom, and one through everything each second: it does not spin on what it can't run.
    assert _claims(engine) - claims <= 12
    assert {row(engine, job).status for job in known} == {"done"}
    assert {(row(engine, job).status, row(engine, job).attempts) for job in unknown} == {("ready", 0)}
    assert (row(engine, orphan).status, row(engine, orphan).attempts) == ("ready", 1)

    new = Registry()
    new.handler("b2", aliases=["b"])(lambda: None)
    with engine.begin() as connection:
        connection.execute(text("UPDATE jobqueue_jobs SET run_at = now()"))
        renamed = add(connection, "b2")
    drain(new, database_url)
    assert {row(engine, job).status for job in (*unknown, orphan, renamed)} == {"done"}


def test_a_queue_runs_no_more_than_its_limit(engine: Engine, database_url: str) -> None:
    """Limits hold per queue, and one full queue does not hold up another."""
    jobs = Registry()
    gate = threading.Event()
    counts = {"narrow": 0, "wide": 0}
    most = dict(counts)
    lock = threading.Lock()

    def work(queue: str) -> None:
        with lock:
            counts[queue] += 1
            most[queue] = max(most[queue], counts[queue])
        gate.wait(PATIENCE)
        with lock:
            counts[queue] -= 1

    jobs.handler("work", queue="narrow")(work)
    jobs.handler("other", queue="wide")(work)
    with engine.begin() as connection:
        for _ in range(8):
            add(connection, "work", '{"queue": "narrow"}', queue="narrow")
            add(connection, "work", '{"queue": "wide"}', queue="wide")
    with running(jobs, database_url, queues={"narrow": 1, "wide": 3}) as recorder:
        recorder.wait_for(JobStarted, count=4)
        gate.set()
        recorder.wait_for(JobSettled, count=16)
    assert most == {"narrow": 1, "wide": 3}


def test_urgent_jobs_come_first(engine: Engine, database_url: str) -> None:
    """Within a queue: by priority, then by due time, then by id."""
    jobs = Registry()
    order: list[str] = []
    jobs.handler("work")(lambda name: order.append(name))
    with engine.begin() as connection:
        for name, priority, run_at in (
            ("third", 5, "2024-01-01T00:00:00Z"),
            ("fourth", 9, "2020-01-01T00:00:00Z"),
            ("second", 5, "2023-01-01T00:00:00Z"),
            ("first", 0, "2024-06-01T00:00:00Z"),
        ):
            add(connection, "work", f'{{"name": "{name}"}}', priority=priority, run_at=run_at)
    drain(jobs, database_url, queues={"default": 1})
    assert order == ["first", "second", "third", "fourth"]


def test_jobs_of_the_future_wait(engine: Engine, database_url: str) -> None:
    """A delayed job is not due before its time on the database's clock."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    with engine.begin() as connection:
        job = add(connection, "work", run_at="2100-01-01T00:00:00Z")
    drain(jobs, database_url)
    assert row(engine, job).status == "ready"


def test_a_runner_without_work_to_do_refuses_to_start(database_url: str) -> None:
    """A misspelt queue and an empty registry are told before anything is claimed."""
    jobs = Registry()
    with pytest.raises(ConfigurationError, match="the registry has no handlers"):
        Runner(jobs, database_url, settings()).start()
    jobs.handler("work", queue="mail")(lambda: None)
    with pytest.raises(ConfigurationError, match="work \\(queue mail\\)"):
        Runner(jobs, database_url, settings(queues={"male": 1})).start()


def test_claimed_ahead_jobs_go_back_when_a_queue_stalls(engine: Engine, database_url: str) -> None:
    """A burst of short jobs lets a runner claim ahead; when long ones follow, others get what it can't start."""
    jobs = Registry()
    gate = threading.Event()
    jobs.handler("short")(lambda: None)
    jobs.handler("long")(lambda: gate.wait(PATIENCE))
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO jobqueue_jobs (kind, run_at) SELECT 'short', now() - interval '1 h' FROM generate_series(1, 3000)"
            )
        )
        connection.execute(
            text("INSERT INTO jobqueue_jobs (kind) SELECT 'long' FROM generate_series(1, 200)")
        )

    def running_now() -> int:
        with engine.connect() as connection:
            query = text("SELECT count(*) FROM jobqueue_jobs WHERE status = 'running'")
            return int(connection.execute(query).scalar_one())

    recorder = Recorder()
    runner = Runner(
        jobs,
        database_url,
        settings(queues={"default": 2}, lease=timedelta(seconds=30)),
        subscribers=[recorder],
    )
    with runner:
        wait_until(lambda: sum(started.kind == "long" for started in recorder.of(JobStarted)) == 2)
        wait_until(lambda: running_now() == 2, what="only what runs is held")
        gate.set()
    with engine.connect() as connection:
        spent = connection.execute(
            text(
                "SELECT max(attempts - returned) FROM jobqueue_jobs WHERE kind = 'long' AND status = 'ready'"
            )
        ).scalar_one()
    assert spent == 0
