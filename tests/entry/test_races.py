"""Two transactions want one key: exactly one job, and nobody's other work is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from sa_jobqueue import Enqueued, Job, enqueue, enqueue_many
from sa_jobqueue.models import jobs
from sa_jobqueue.records import NewJob
from sa_jobqueue.store import conflicts, inserts
from tests.entry.application import Document
from tests.entry.counting import backend, rows, wait_until_blocked
from tests.entry.second import Second
from tests.support.jobs import insert_job, keyed
from tests.support.waiting import PATIENCE


def documents(engine: Engine) -> list[str]:
    with Session(engine) as session:
        return list(session.scalars(select(Document.title)))


def first(session: Session) -> Job:
    session.add(job := enqueue("first", idempotency_key="x"))
    session.flush()
    return job


def test_the_second_waits_and_learns_of_the_first_that_commits(
    application: Engine, session: Session, pool: ThreadPoolExecutor
) -> None:
    """It gets the first one's id, and its own row is stored."""
    job = first(session)
    second = Second(application, pool)
    second.wait_until_blocked()
    session.commit()
    assert job.enqueued
    assert second.outcome.result(PATIENCE) == Enqueued(job.enqueued.id, "existing")
    assert rows(application, "kind") == ["first"]
    assert documents(application) == ["second"]


def test_the_second_creates_the_job_when_the_first_rolls_back(
    application: Engine, session: Session, pool: ThreadPoolExecutor
) -> None:
    """A job of a transaction that came to nothing must not count as a duplicate."""
    first(session)
    second = Second(application, pool)
    second.wait_until_blocked()
    session.rollback()
    outcome = second.outcome.result(PATIENCE)
    assert outcome
    assert outcome.created
    assert rows(application, "id", "kind") == [(outcome.id, "second")]


def test_five_at_once_of_which_four_roll_back(application: Engine, pool: ThreadPoolExecutor) -> None:
    """Whoever commits creates the one job, in whatever order they come."""
    barrier = threading.Barrier(5)

    def run(number: int) -> Enqueued | None:
        with Session(application) as session:
            barrier.wait(PATIENCE)
            session.add(job := enqueue(f"{number}", idempotency_key="x"))
            session.flush()
            if number != 3:
                session.rollback()
                return None
            session.commit()
            return job.enqueued

    outcomes = [pool.submit(run, number) for number in range(5)]
    told = [outcome.result(PATIENCE) for outcome in outcomes]
    assert rows(application, "kind") == ["3"]
    assert told[3]
    assert told[3].created


def test_many_transactions_over_the_same_keys(application: Engine, pool: ThreadPoolExecutor) -> None:
    """Overlapping batches neither fail nor deadlock: keys are taken in one order."""

    def run(seed: int) -> list[Enqueued | None]:
        told = []
        for turn in range(15):
            with Session(application) as session:
                keys = [f"{(seed * 7 + turn * 3 + n * 5) % 20}" for n in range(5)]
                session.add_all(new := [enqueue("k", {"key": key}, idempotency_key=key) for key in keys])
                session.commit()
                told += [(key, job.enqueued.id) for key, job in zip(keys, new, strict=True) if job.enqueued]
        return told

    told = [pair for work in [pool.submit(run, seed) for seed in range(6)] for pair in work.result(PATIENCE)]
    stored = dict(rows(application, "unique_key", "id"))
    assert len(stored) == 20
    assert len(told) == 6 * 15 * 5
    assert all(stored[key] == id_ for key, id_ in told)


def test_two_flushes_with_keys_in_opposite_order_do_not_deadlock(
    application: Engine, session: Session, pool: ThreadPoolExecutor
) -> None:
    """Inside one flush the order of add() doesn't matter; over several flushes it does, as for any two rows."""
    session.add(enqueue("first", idempotency_key="a"))
    session.flush()
    ready = threading.Event()
    pids: list[int] = []

    def other() -> None:
        with Session(application) as session:
            pids.append(backend(session))
            ready.set()
            session.add_all([enqueue("second", idempotency_key=key) for key in ("b", "a")])
            session.commit()

    work = pool.submit(other)
    assert ready.wait(PATIENCE)
    wait_until_blocked(application, pids[0])
    session.add(enqueue("first", idempotency_key="b"))
    session.commit()
    work.result(PATIENCE)
    assert rows(application, "kind", "unique_key") == [("first", "a"), ("first", "b")]


@pytest.mark.parametrize("commit", [True, False])
def test_repeatable_read(
    commit: bool, application: Engine, session: Session, pool: ThreadPoolExecutor
) -> None:
    """A holder that committed after the snapshot is a serialization failure, by that level's contract; never two jobs."""
    strict = application.execution_options(isolation_level="REPEATABLE READ")
    first(session)
    second = Second(strict, pool)
    second.wait_until_blocked()
    if commit:
        session.commit()
        with pytest.raises(OperationalError) as caught:
            second.outcome.result(PATIENCE)
        assert getattr(caught.value.orig, "sqlstate", None) == "40001"
        assert documents(application) == []
        assert Second(strict, pool).outcome.result(PATIENCE) == Enqueued(
            rows(application, "id")[0], "existing"
        )
    else:
        session.rollback()
        assert second.outcome.result(PATIENCE)
        assert rows(application, "kind") == ["second"]


@pytest.mark.parametrize("lock", ["FOR UPDATE", "an uncommitted UPDATE"])
def test_a_locked_holder_makes_nobody_wait(lock: str, application: Engine, session: Session) -> None:
    """A runner, or an application's long transaction, has the row locked: a producer of the same key goes on."""
    with Session(application) as other:
        other.add(held := enqueue("held", idempotency_key="x"))
        other.commit()
    with application.connect() as connection:
        if lock == "FOR UPDATE":
            connection.execute(select(jobs.c.id).with_for_update())
        else:
            connection.execute(jobs.update().values(priority=1))
        session.connection().exec_driver_sql("SET LOCAL lock_timeout = '2s'")
        session.add(job := enqueue("second", idempotency_key="x"))
        session.commit()
        connection.rollback()
    assert held.enqueued
    assert job.enqueued == Enqueued(held.enqueued.id, "existing")


def vanishing(monkeypatch: pytest.MonkeyPatch, engine: Engine, times: int) -> Callable[[], int]:
    """Between insert and read the holder is deleted, and put back before the next insert, so many times."""
    count = 0
    real_insert, real_read = inserts._insert_once, conflicts.holders_of_keys

    def insert(connection: object, new_jobs: list[NewJob], *rest: object) -> object:
        if count < times:
            with engine.begin() as other:
                insert_job(other, kind="held", **keyed("x", scope="row"))
        return real_insert(connection, new_jobs, *rest)  # type: ignore[arg-type]

    def read() -> object:
        nonlocal count
        count += 1
        with engine.begin() as other:
            other.execute(jobs.delete())
        return real_read()

    monkeypatch.setattr(inserts, "_insert_once", insert)
    monkeypatch.setattr(conflicts, "holders_of_keys", read)
    return lambda: count


def test_a_holder_that_vanishes_between_insert_and_read(
    monkeypatch: pytest.MonkeyPatch, application: Engine, session: Session
) -> None:
    """Pruned just then: the key is free, so the job is inserted after all."""
    rounds = vanishing(monkeypatch, application, 3)
    session.add(job := enqueue("k", idempotency_key="x"))
    session.commit()
    assert rounds() == 3
    assert job.enqueued
    assert job.enqueued.created


def test_a_key_that_never_settles_ends_in_an_error(
    monkeypatch: pytest.MonkeyPatch, application: Engine, session: Session
) -> None:
    """The loop is bounded, and the error names the key."""
    rounds = vanishing(monkeypatch, application, 1000)
    session.add(enqueue("k", idempotency_key="x"))
    with pytest.raises(inserts.EnqueueError, match="idempotency key 'x' was neither free nor held"):
        session.flush()
    assert rounds() == inserts.ROUNDS + 1  # the last look is for the text of the error


def test_several_flushes_in_opposite_order_can_deadlock(application: Engine, session: Session) -> None:
    """The documented limit: PostgreSQL ends one of the two, and nothing is lost in silence."""
    outcome: list[str] = []
    both_hold = threading.Barrier(2)

    def run(keys: str) -> None:
        with Session(application) as own:
            try:
                for key in keys:
                    own.add(enqueue("k", idempotency_key=key))
                    own.flush()
                    if key == keys[0]:
                        both_hold.wait(PATIENCE)
                own.commit()
                outcome.append("committed")
            except DBAPIError as error:
                outcome.append(type(error.orig).__name__)

    threads = [threading.Thread(target=run, args=(keys,)) for keys in ("ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(outcome) == ["DeadlockDetected", "committed"]
    assert sorted(rows(application, "unique_key")) == ["a", "b"]


def test_a_second_bulk_call_waits_as_well(
    application: Engine, session: Session, pool: ThreadPoolExecutor
) -> None:
    """enqueue_many() goes the same way as the flush."""
    first(session)
    engine = create_engine(application.url)
    pids: list[int] = []
    ready = threading.Event()

    def other() -> list[Enqueued]:
        with engine.begin() as connection:
            pids.append(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
            ready.set()
            return enqueue_many(
                connection, [enqueue("second", idempotency_key=key) for key in ("w", "x", "y")]
            )

    work = pool.submit(other)
    assert ready.wait(PATIENCE)
    wait_until_blocked(application, pids[0])
    session.commit()
    assert [enqueued.outcome for enqueued in work.result(PATIENCE)] == ["created", "existing", "created"]
    engine.dispose()
