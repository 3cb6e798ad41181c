"""Redrive: a person's second chance for a job, in the person's own transaction."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sa_jobqueue.admin import OperatorResult, redrive
from sa_jobqueue.models import Job, jobs
from sa_jobqueue.statements import settle
from sa_jobqueue.states import JobStatus
from tests.support.jobs import add_job, add_running, insert_job, keyed, read_job, refuse
from tests.support.locks import in_thread, wait_for_a_lock

HOUR = timedelta(hours=1)


def add_dead(engine: Engine, **columns: Any) -> int:
    finished = {"status": "dead", "reason": "exhausted", "attempts": 5, "finished_at": func.now()}
    return add_job(engine, **{**finished, **columns})


def went(job_id: int) -> OperatorResult:
    return OperatorResult(job_id, landed=True, status=JobStatus.READY)


def stayed(job_id: int, reason: str, status: JobStatus = JobStatus.DEAD) -> OperatorResult:
    return OperatorResult(job_id, landed=False, status=status, reason=reason)


def redrive_and_commit(engine: Engine, ids: list[int]) -> list[OperatorResult]:
    with engine.begin() as connection:
        return redrive(connection, ids)


def test_a_dead_job_gets_a_new_budget(engine: Engine) -> None:
    """A redriven job is ready now with as many attempts as at first; its history stays."""
    errors = [{"attempt": 5, "error": "boom"}]
    job_id = add_dead(
        engine, returned=1, max_attempts=4, run_at=func.now() - HOUR, last_error="boom", errors=errors
    )
    before = read_job(engine, job_id)
    assert redrive_and_commit(engine, [job_id]) == [went(job_id)]
    after = read_job(engine, job_id)
    assert (after.status, after.attempts, after.returned) == ("ready", 5, 5)
    assert (after.reason, after.finished_at, after.run_at) == (None, None, after.updated_at)
    assert {name for name in before._fields if getattr(before, name) != getattr(after, name)} == {
        *("status", "returned", "reason", "finished_at", "run_at", "updated_at")
    }


def test_a_cancelled_job_is_cleared_of_its_request(engine: Engine) -> None:
    """What led to the cancellation is gone, or the job would be cancelled again: the request and a past expiry."""
    job_id = add_dead(
        engine, status="cancelled", cancel_requested_at=func.now(), expires_at=func.now() - HOUR
    )
    redrive_and_commit(engine, [job_id])
    row = read_job(engine, job_id)
    assert (row.status, row.cancel_requested_at, row.expires_at) == ("ready", None, None)


def test_what_lies_ahead_is_kept(engine: Engine) -> None:
    """A job cancelled before its time keeps its time and an expiry to come."""
    job_id = add_dead(engine, status="cancelled", run_at=func.now() + HOUR, expires_at=func.now() + 2 * HOUR)
    before = read_job(engine, job_id)
    redrive_and_commit(engine, [job_id])
    row = read_job(engine, job_id)
    assert (row.run_at, row.expires_at) == (before.run_at, before.expires_at)


@pytest.mark.parametrize("status", ["ready", "running", "done"])
def test_other_jobs_stay(engine: Engine, status: str) -> None:
    """No way leads out of done, and what is not at rest needs no redrive: the answer names the status."""
    columns = {
        "ready": {},
        "running": {"lease_token": func.gen_random_uuid(), "lease_until": func.now(), "attempts": 1},
        "done": {"finished_at": func.now()},
    }[status]
    job_id = add_job(engine, status=status, **columns)
    before = read_job(engine, job_id)
    reason = f"the job is {status}, neither dead nor cancelled"
    assert redrive_and_commit(engine, [job_id]) == [stayed(job_id, reason, JobStatus(status))]
    assert read_job(engine, job_id) == before


def test_answers_in_the_order_asked(engine: Engine) -> None:
    """Each id is answered once, in the order given; an id without a job says so."""
    first, second = add_dead(engine), add_dead(engine)
    answers = redrive_and_commit(engine, [second, 10**9, first, second])
    assert answers == [
        went(second),
        OperatorResult(10**9, landed=False, status=None, reason="no such job"),
        went(first),
    ]
    assert redrive_and_commit(engine, []) == []


def test_a_key_is_taken_again(engine: Engine) -> None:
    """A key that the end of the job let go guards the job again; one of scope `row` was never let go."""
    let_go, kept = add_dead(engine, **keyed("a", held=False)), add_dead(engine, **keyed("b", scope="row"))
    redrive_and_commit(engine, [let_go, kept])
    assert [read_job(engine, job_id).unique_key for job_id in (let_go, kept)] == ["a", "b"]


def test_a_held_key_stops_its_own_job_only(engine: Engine) -> None:
    """A job whose key another job holds by now stays dead and says which; the others of the call go."""
    ids = [add_dead(engine, **keyed(key, held=False)) for key in ("a", "b", "c")]
    holder = add_job(engine, **keyed("b"))
    plain = add_dead(engine)
    answers = redrive_and_commit(engine, [*ids, plain])
    reason = f"key held by job {holder}"
    assert [(answer.landed, answer.reason) for answer in answers] == [
        (True, None),
        (False, reason),
        (True, None),
        (True, None),
    ]
    row = read_job(engine, ids[1])
    assert (row.status, row.reason, row.unique_key) == ("dead", reason, None)


def test_two_jobs_of_one_key(engine: Engine) -> None:
    """Of two finished jobs with the same key one may come back."""
    first, second = (add_dead(engine, **keyed("key", held=False)) for _ in range(2))
    answers = redrive_and_commit(engine, [second, first])
    assert answers == [
        went(second),
        stayed(first, f"key held by job {second}"),
    ]


@pytest.mark.parametrize("commit", [True, False])
def test_a_key_that_is_being_taken(engine: Engine, *, commit: bool) -> None:
    """While another transaction takes the key the redrive waits: its commit stops the job, its rollback lets it go."""
    job_id = add_dead(engine, **keyed("key", held=False))
    with engine.connect() as producer:
        transaction = producer.begin()
        holder = insert_job(producer, **keyed("key"))
        thread, answers = in_thread(lambda: redrive_and_commit(engine, [job_id]))
        wait_for_a_lock(engine)
        transaction.commit() if commit else transaction.rollback()
        thread.join()
    assert answers == [[stayed(job_id, f"key held by job {holder}") if commit else went(job_id)]]


@pytest.mark.parametrize("commit", [True, False])
def test_two_people_redrive_for_one_key(engine: Engine, *, commit: bool) -> None:
    """Two dead jobs of one key, two people: the second waits, and then stays behind, or goes when the first gives up."""
    first, second = (add_dead(engine, **keyed("key", held=False)) for _ in range(2))
    with engine.connect() as winner:
        transaction = winner.begin()
        assert redrive(winner, [first]) == [went(first)]
        thread, answers = in_thread(lambda: redrive_and_commit(engine, [second]))
        wait_for_a_lock(engine)
        transaction.commit() if commit else transaction.rollback()
        thread.join()
    assert answers == [[stayed(second, f"key held by job {first}") if commit else went(second)]]
    statuses = [read_job(engine, job_id).status for job_id in (first, second)]
    assert statuses == (["ready", "dead"] if commit else ["dead", "ready"])


def test_keys_are_taken_in_their_order(engine: Engine) -> None:
    """Two people redrive jobs of the same keys in opposite orders: the second waits for the first key, no deadlock."""
    mine = [add_dead(engine, **keyed(key, held=False)) for key in ("a", "b")]
    theirs = [add_dead(engine, **keyed(key, held=False)) for key in ("a", "b")]
    with engine.begin() as first:
        assert redrive(first, mine[:1]) == [went(mine[0])]
        thread, answers = in_thread(lambda: redrive_and_commit(engine, theirs[::-1]))
        wait_for_a_lock(engine)
        assert redrive(first, mine[1:]) == [went(mine[1])]
    thread.join()
    assert answers == [[stayed(theirs[place], f"key held by job {mine[place]}") for place in (1, 0)]]


def test_many_jobs_with_keys(engine: Engine) -> None:
    """Every job with a key goes by itself: of hundreds, exactly those stay whose key is held."""
    dead = [add_dead(engine, **keyed(f"key {number}", held=False)) for number in range(300)]
    holders = {dead[number]: add_job(engine, **keyed(f"key {number}")) for number in range(0, 300, 10)}
    assert redrive_and_commit(engine, dead) == [
        stayed(job_id, f"key held by job {holders[job_id]}") if job_id in holders else went(job_id)
        for job_id in dead
    ]


@pytest.mark.parametrize("level", ["READ COMMITTED", "AUTOCOMMIT"])
def test_a_refusal_that_is_not_the_keys(engine: Engine, level: str) -> None:
    """An application's own constraint is no held key: its error comes out as it is, and at once."""
    job_id = add_dead(engine, **keyed("key", held=False))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE seen (status text UNIQUE)")
    refuse(engine, job_id, "INSERT INTO seen SELECT 'again' FROM generate_series(1, 2)")
    with (
        engine.connect().execution_options(isolation_level=level) as connection,
        pytest.raises(IntegrityError, match="seen_status_key"),
    ):
        redrive(connection, [job_id])
    assert read_job(engine, job_id).status == "dead"


def test_two_redrives_at_once(engine: Engine) -> None:
    """The second of two people waits for the first one's commit and then does nothing."""
    job_id = add_dead(engine)
    with engine.begin() as first:
        assert redrive(first, [job_id]) == [went(job_id)]
        thread, answers = in_thread(lambda: redrive_and_commit(engine, [job_id]))
        wait_for_a_lock(engine)
    thread.join()
    reason = "the job is ready, neither dead nor cancelled"
    assert answers == [[stayed(job_id, reason, JobStatus.READY)]]


def test_a_job_that_finishes_meanwhile(engine: Engine) -> None:
    """The person waits for the runner's last write, and then sends back what it left: the row as it is, not as it was."""
    token = uuid4()
    job_id = add_running(engine, token, max_attempts=1)
    with engine.begin() as runner:
        given = {"ids": [job_id], "tokens": [token], "delays": [None], "error_texts": ["boom"]}
        assert runner.execute(settle.retry(), given).one().status == "dead"
        thread, answers = in_thread(lambda: redrive_and_commit(engine, [job_id]))
        wait_for_a_lock(engine)
    thread.join()
    assert answers == [[went(job_id)]]
    row = read_job(engine, job_id)
    assert (row.status, row.last_error, row.settled_token) == ("ready", "boom", token)


def test_the_caller_decides(engine: Engine) -> None:
    """Nothing is committed for the caller: a rollback undoes the redrive, held keys included."""
    plain, blocked = add_dead(engine), add_dead(engine, **keyed("key", held=False))
    add_job(engine, **keyed("key"))
    before = [read_job(engine, job_id) for job_id in (plain, blocked)]
    with engine.connect() as connection:
        redrive(connection, [plain, blocked])
        connection.rollback()
    assert [read_job(engine, job_id) for job_id in (plain, blocked)] == before


def test_in_a_session(engine: Engine) -> None:
    """A Session's own Job objects show the redrive at their next read, and other work of the transaction survives."""
    job_id, blocked = add_dead(engine), add_dead(engine, **keyed("key", held=False))
    add_job(engine, **keyed("key"))
    with Session(engine) as session, session.begin():
        job = session.get_one(Job, job_id)
        assert job.status == "dead"
        added = insert_job(session.connection())
        assert [answer.landed for answer in redrive(session, [job_id, blocked])] == [True, False]
        assert job.status == "ready"
    assert read_job(engine, added).status == "ready"


def test_on_an_autocommit_connection(engine: Engine) -> None:
    """Without a transaction each job goes by itself; a held key is answered all the same."""
    free, blocked = (add_dead(engine, **keyed(key, held=False)) for key in ("a", "b"))
    holder = add_job(engine, **keyed("b"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert redrive(connection, [free, blocked]) == [
            went(free),
            stayed(blocked, f"key held by job {holder}"),
        ]


def test_a_stricter_isolation_passes_its_error_on(engine: Engine) -> None:
    """Under REPEATABLE READ a job that somebody changed meanwhile is a serialization failure, as for any UPDATE."""
    job_id = add_dead(engine)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(select(jobs.c.id))
        redrive_and_commit(engine, [job_id])
        with pytest.raises(OperationalError, match="could not serialize"):
            redrive(connection, [job_id])


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "AUTOCOMMIT"])
def test_from_async_code(engine: Engine, driver: str, level: str) -> None:
    """Savepoints and held keys are the same under asyncio."""
    free, blocked = (add_dead(engine, **keyed(key, held=False)) for key in ("a", "b"))
    holder = add_job(engine, **keyed("b"))

    async def call() -> list[OperatorResult]:
        url = engine.url.set(drivername=f"postgresql+{driver}")
        async_engine = create_async_engine(url, isolation_level=level)
        async with async_engine.begin() as connection:
            answers = await redrive(connection, [free, blocked])
        await async_engine.dispose()
        return answers

    assert [answer.reason for answer in asyncio.run(call())] == [None, f"key held by job {holder}"]
    assert [read_job(engine, job_id).status for job_id in (free, blocked)] == ["ready", "dead"]
