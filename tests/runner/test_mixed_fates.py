"""Slots under every fate that a job can have: whatever becomes of it, its slot comes back and the runner forgets it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import (
    CancelRequested,
    HandlerTimedOut,
    LeaseLost,
    LoopFailed,
    OutcomeDropped,
    SettleDelayed,
)
from sa_jobqueue.outcomes import Discard, Retry, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import QueueSettings, Runner
from tests.support.runners import Recorder, settings
from tests.support.waiting import wait_until

JOBS = 700
QUEUES = {
    "plain": QueueSettings(6, "thread"),
    "loop": QueueSettings(20, "asyncio"),
    "own": QueueSettings(4, "thread"),
}
FATES = (
    *("done", "done", "done", "done", "fails", "retries", "snoozes", "discards", "cancels itself"),
    *("late", "hangs", "deaf", "taken away", "unwanted", "refused", "refused"),
)
TIMEOUT = timedelta(milliseconds=250)
#: As long as a handler lasts that nothing ends, in seconds: longer than its timeout and what is left of its lease.
FOR_LONG = 1.5
ADD = text(
    "INSERT INTO jobqueue_jobs (kind, queue, payload, expires_at) "
    "VALUES (:kind, :queue, jsonb_build_object('fate', CAST(:fate AS text)), CASE WHEN :late THEN now() END)"
)
REFUSE = text("""
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_jobs FOR EACH ROW WHEN (
        OLD.status = 'running' AND NEW.status <> 'running' AND OLD.payload ->> 'fate' = 'refused'
    ) EXECUTE FUNCTION refuse()
""")
RUNNING = "status = 'running' AND attempts = 1 AND payload ->> 'fate'"
TAKE_AWAY = text(
    "UPDATE jobqueue_jobs SET lease_token = gen_random_uuid(), lease_until = now() - interval '1 hour' "
    f"WHERE {RUNNING} = 'taken away'"
)
CANCEL = text(
    f"UPDATE jobqueue_jobs SET cancel_requested_at = now() WHERE {RUNNING} = 'unwanted' AND cancel_requested_at IS NULL"
)
LOCK = text(
    "SELECT id FROM jobqueue_jobs WHERE status = 'running' ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED"
)
CUT = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name LIKE 'sa_jobqueue %' AND datname = current_database() ORDER BY random() LIMIT 1"
)
LEFT = text("SELECT count(*) FROM jobqueue_jobs WHERE status IN ('ready', 'running')")


def _says(ctx: JobContext, seen: set[int]) -> Any:
    match ctx.payload["fate"]:
        case "fails":
            raise ValueError
        case "retries":
            return Retry(after=timedelta(0))
        case "snoozes" if ctx.id not in seen:
            seen.add(ctx.id)
            return Snooze(timedelta(0))
        case "discards":
            return Discard("why")
    return None


#: How long each of these lasts, in seconds, at its first attempt.
LASTING = {"late": 0.4, "hangs": FOR_LONG, "deaf": FOR_LONG, "taken away": FOR_LONG, "unwanted": FOR_LONG}


def _registry() -> Registry:
    jobs, seen = Registry(), set[int]()
    options: dict[str, Any] = {"timeout": TIMEOUT, "retry": fixed(timedelta(0)), "max_attempts": 50}
    patient = options | {"timeout": timedelta(minutes=1)}

    def plain(ctx: JobContext) -> Any:
        if ctx.attempt > 1:
            return None
        fate = ctx.payload["fate"]
        if fate == "cancels itself":
            raise asyncio.CancelledError
        ends = time.monotonic() + LASTING.get(fate, 0)
        while time.monotonic() < ends and not (fate == "unwanted" and ctx.cancel_requested):
            time.sleep(0.02)
        return _says(ctx, seen)

    async def asynchronous(ctx: JobContext) -> Any:
        if ctx.attempt > 1:
            return None
        fate, task = ctx.payload["fate"], asyncio.current_task()
        if fate == "cancels itself" and task is not None:
            task.cancel()
        ends = time.monotonic() + LASTING.get(fate, 0)
        while (left := ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(left))
            except asyncio.CancelledError:
                if fate != "deaf":
                    raise
        await asyncio.sleep(0)
        return _says(ctx, seen)

    for kind, settled in (("quick", options), ("patient", patient)):
        jobs.handler(kind, queue="plain", **settled)(plain)
        jobs.handler(f"{kind}.async", queue="loop", **settled)(asynchronous)
    return jobs


@contextmanager
def _meddling(engine: Engine) -> Iterator[None]:
    """Somebody who takes jobs away, cancels them, locks their rows and cuts the runner's connections."""
    over, faults = threading.Event(), list[BaseException]()

    def turn(connection: Connection, number: int) -> None:
        with connection.begin():
            connection.execute(TAKE_AWAY)
            connection.execute(CANCEL)
        if number % 5 == 0:
            with connection.begin():
                connection.execute(LOCK)
                over.wait(0.5)
        if number % 9 == 0:
            with connection.begin():
                connection.execute(CUT)
        over.wait(0.1)

    def meddle() -> None:
        try:
            with engine.connect() as connection:
                number = 0
                while not over.is_set():
                    turn(connection, number := number + 1)
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert faults == []


def _occupied(runner: Runner) -> dict[str, Any]:
    """What the runner holds, as its own parts count it."""
    crew = runner._crew
    assert crew is not None
    book, state = crew.book, crew.dispatcher._state
    return {
        "slots": {queue: lane.held for queue, lane in state.lanes.items() if lane.held},
        "unwritten": state.unwritten,
        "book": list(book._held),
        "waits": dict(crew.settler._state.waits),
    }


NOTHING: dict[str, Any] = {"slots": {}, "unwritten": 0, "book": [], "waits": {}}


def test_every_slot_comes_back(engine: Engine, database_url: str) -> None:
    """Hundreds of jobs of all fates, on all executors, while rows are locked and connections cut; then all slots at once."""
    jobs, chance, gate = _registry(), random.Random(7), threading.Event()
    together = {queue: threading.Semaphore(0) for queue in QUEUES}

    @jobs.handler("fill", queue="plain", timeout="never")
    def fill(ctx: JobContext) -> None:
        together[ctx.queue].release()
        assert gate.wait(60)

    with engine.begin() as connection:
        connection.execute(REFUSE)
        connection.execute(
            ADD,
            [
                {
                    "kind": chance.choice(("quick", "quick", "patient")) + chance.choice(("", ".async")),
                    "queue": chance.choice(list(QUEUES)),
                    "fate": chance.choice(FATES),
                    "late": chance.random() < 0.05,
                }
                for _ in range(JOBS)
            ],
        )
    recorder = Recorder()
    runner = Runner(
        jobs, database_url, settings(queues=QUEUES, lease=timedelta(milliseconds=600)), subscribers=[recorder]
    )
    with runner:
        with _meddling(engine):
            recorder.wait_for(SettleDelayed, count=20, timeout=60)
            with engine.begin() as connection:
                connection.execute(text("DROP TRIGGER refuse ON jobqueue_jobs"))

            def left() -> int:
                with engine.connect() as connection:
                    return int(connection.execute(LEFT).scalar_one())

            wait_until(lambda: left() < 20, timeout=120, what="nearly all are through")
        wait_until(lambda: left() == 0, timeout=60, what="all are through")
        wait_until(lambda: _occupied(runner) == NOTHING, timeout=20, what="nothing is held")
        for happened in (CancelRequested, HandlerTimedOut, LeaseLost, LoopFailed, OutcomeDropped):
            assert recorder.of(happened), f"no {happened.__name__}: the test has lost its point"
        with engine.begin() as connection:
            for queue, given in QUEUES.items():
                fills = [{"kind": "fill", "queue": queue, "fate": "done", "late": False}] * given.concurrency
                connection.execute(ADD, fills)
        for queue, given in QUEUES.items():
            for _ in range(given.concurrency):
                assert together[queue].acquire(timeout=20), f"{queue}: {_occupied(runner)}"
        gate.set()
        wait_until(lambda: _occupied(runner) == NOTHING, timeout=20)
