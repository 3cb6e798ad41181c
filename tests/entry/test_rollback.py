"""Rollback and savepoints: a job exists if and only if the caller's work does, and its object can be used again."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from sa_jobqueue import Enqueued, Job, enqueue, enqueue_many, ref
from tests.entry.application import Document
from tests.entry.conftest import Client
from tests.entry.counting import rows
from tests.entry.savepoints import in_savepoints


def test_savepoints_decide_for_their_jobs(client: Client, application: Engine) -> None:
    """Rolled back, released, none, and released inside one that is rolled back: exactly the second and third exist."""
    first, second, third, fourth = (enqueue(f"job{n}", idempotency_key=f"{n}") for n in range(1, 5))

    def work(session: Session) -> None:
        in_savepoints(session, first, second, third, fourth)
        assert rows(application, "kind") == []

    client.run(work)
    assert rows(application, "kind") == ["job2", "job3"]
    assert [job.enqueued is None for job in (first, second, third, fourth)] == [True, False, False, True]

    def again(session: Session) -> None:
        session.add_all([first, fourth])

    client.run(again)
    assert rows(application, "kind") == ["job2", "job3", "job1", "job4"]


@pytest.mark.parametrize("key", ["x", None])
def test_a_rolled_back_job_can_be_added_again(key: str | None, application: Engine, session: Session) -> None:
    """It is inserted from what was asked for, not from what the server answered the first time."""
    session.add(job := enqueue("k", {"a": 1}, delay=timedelta(days=1), idempotency_key=key))
    session.flush()
    first_id = job.id
    session.rollback()
    assert job not in session
    assert (job.id, job.enqueued, job.status) == (None, None, None)
    assert (job.run_at, job.payload) == (timedelta(days=1), {"a": 1})
    session.add(job)
    session.commit()
    assert job.enqueued
    assert job.enqueued.created
    assert job.id != first_id
    assert rows(application, "payload") == [{"a": 1}]
    assert rows(application, "run_at")[0] - rows(application, "created_at")[0] == timedelta(days=1)


def test_a_job_added_again_in_another_session(application: Engine) -> None:
    """The object belongs to nobody after the rollback."""
    with Session(application) as session:
        session.add(job := enqueue("k", idempotency_key="x"))
        session.flush()
        session.rollback()
    with Session(application) as session, session.begin():
        session.add(job)
    assert rows(application, "id") == [job.enqueued.id if job.enqueued else None]


def test_a_savepoint_is_rolled_back_and_the_job_added_in_the_same_transaction(
    application: Engine, session: Session
) -> None:
    """No conflict of identities, one row, one outcome."""
    job = enqueue("k", idempotency_key="x")
    for _ in range(3):
        savepoint = session.begin_nested()
        session.add(job)
        session.flush()
        savepoint.rollback()
    session.add(job)
    session.commit()
    assert rows(application, "id") == [job.id]


def test_a_released_savepoint_goes_with_the_outer_rollback(application: Engine, session: Session) -> None:
    """Release alone makes nothing final."""
    with session.begin_nested():
        session.add(job := enqueue("k", idempotency_key="x"))
    assert job.enqueued
    session.rollback()
    assert job.enqueued is None
    session.add(job)
    session.commit()
    assert rows(application, "id") == [job.id]


def test_told_existing_then_rolled_back_then_the_holder_is_gone(
    application: Engine, session: Session
) -> None:
    """The object must not keep the identity of somebody else's row: added again, it asks again."""
    with Session(application) as other, other.begin():
        other.add(holder := enqueue("holder", idempotency_key="x"))
    session.add(job := enqueue("mine", idempotency_key="x"))
    session.flush()
    assert holder.enqueued
    assert job.enqueued == Enqueued(holder.enqueued.id, "existing")
    session.rollback()
    assert (job.kind, job.enqueued) == ("mine", None)
    with application.begin() as connection:
        connection.execute(Job.__table__.delete())
    session.add(job)
    session.commit()
    assert rows(application, "kind") == ["mine"]
    assert job.enqueued
    assert job.enqueued.created


def test_the_second_object_of_a_key_is_reset_with_the_first(application: Engine, session: Session) -> None:
    """It was told the id of a row that was rolled back."""
    first, second = (enqueue(kind, idempotency_key="x") for kind in ("first", "second"))
    session.add_all([first, second])
    session.flush()
    session.rollback()
    assert (first.enqueued, second.enqueued) == (None, None)
    session.add(second)
    session.commit()
    assert rows(application, "kind") == ["second"]


def test_an_object_that_showed_another_row_shows_its_own(application: Engine, session: Session) -> None:
    """It stood outside the session for a stored job; that one is pruned, and it is added again."""
    session.add(holder := enqueue("holder", {"a": 1}, idempotency_key="x", priority=0))
    session.commit()
    session.add(job := enqueue("mine", {"b": 2}, idempotency_key="x"))
    session.flush()
    session.commit()
    assert (job.kind, job.id, job in session) == ("holder", holder.id, False)
    session.expunge_all()
    with application.begin() as connection:
        connection.execute(Job.__table__.delete())
    session.add_all([job, enqueue("after", {"job": ref(job)}, idempotency_key="y")])
    session.flush()
    assert (job.kind, job.payload, job.priority, job.attempts) == ("mine", {"b": 2}, 5, 0)
    session.commit()
    assert rows(application, "kind", "payload") == [("mine", {"b": 2}), ("after", {"job": job.id})]


def test_a_failing_flush_takes_its_jobs_along(application: Engine, session: Session) -> None:
    """The business row is refused by the server after the job was inserted: nothing stays."""
    session.add(Document(id=1, title="a"))
    session.commit()
    session.add(job := enqueue("k", idempotency_key="x"))
    session.add(Document(id=1, title="again"))
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    assert (job.enqueued, rows(application, "id")) == (None, [])
    session.add(job)
    session.commit()
    assert rows(application, "unique_key") == ["x"]


def test_a_rolled_back_reference_is_resolved_anew(application: Engine, session: Session) -> None:
    """The payload that is inserted again holds the key of the row that exists then."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add_all([document, job])
    session.flush()
    first_id = document.id
    session.rollback()
    document.id = first_id + 100
    session.add_all([document, job])
    session.commit()
    assert rows(application, "payload") == [{"document_id": first_id + 100}]


def test_closing_without_commit_leaves_nothing(client: Client, application: Engine) -> None:
    """An exception between flush and commit, as a request handler has it."""

    def work(session: Session) -> None:
        session.add(enqueue("k", idempotency_key="x"))
        session.flush()
        raise RuntimeError("the request failed")

    with pytest.raises(RuntimeError, match="the request failed"):
        client.run(work)
    assert rows(application, "id") == []


def test_the_outer_transaction_of_a_test_fixture(application: Engine) -> None:
    """The documented recipe: the session's commits are savepoints, the fixture rolls everything back."""
    with application.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            session.add(job := enqueue("k", idempotency_key="x"))
            session.commit()
            assert job.enqueued
            session.add(again := enqueue("k", idempotency_key="x"))
            session.rollback()
            assert again.enqueued is None
            assert enqueue_many(session, [again]) == [Enqueued(job.enqueued.id, "existing")]
            session.commit()
        outer.rollback()
    assert rows(application, "id") == []


def test_a_job_that_nobody_keeps_is_inserted_all_the_same(application: Engine, session: Session) -> None:
    """The session alone holds a pending object; afterwards the collector may have it, before a rollback too."""
    session.add(enqueue("k", idempotency_key="x"))
    gc.collect()
    session.flush()
    gc.collect()
    assert list(session) == []
    session.rollback()
    session.add(enqueue("k", idempotency_key="x"))
    session.commit()
    assert rows(application, "unique_key") == ["x"]


def test_a_session_keeps_no_jobs_that_nobody_else_has(application: Engine, session: Session) -> None:
    """However often the key of one of its objects is enqueued again."""
    session.add(first := enqueue("k", idempotency_key="x"))
    session.flush()
    again = enqueue("k", idempotency_key="x", on_conflict="replace")
    session.add(again)
    session.flush()
    assert first in session
    gone = weakref.ref(again)
    del again
    gc.collect()
    assert gone() is None
    session.rollback()
