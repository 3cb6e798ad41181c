"""The key is taken: one matrix of what was asked for and what the holder does, the same for ORM, Core and bulk."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import DuplicateKeyError, Enqueued, EnqueueError, Job, JobStatus, enqueue, enqueue_many
from sa_jobqueue.store import inserts
from tests.entry.application import Document
from tests.entry.conftest import Client
from tests.entry.counting import rows
from tests.support.jobs import add_job, add_running, change, keyed, read_job, refuse

LATER = datetime(2031, 1, 1, tzinfo=UTC)
#: What happens to the holder of a key, by its status and what the second job asks for.
MATRIX = {
    ("existing", "ready"): "existing",
    ("existing", "running"): "existing",
    ("existing", "done"): "existing",
    ("existing", "dead"): "existing",
    ("existing", "cancelled"): "existing",
    ("replace", "ready"): "replaced",
    ("replace", "running"): "running",
    ("replace", "done"): "existing",
    ("replace", "dead"): "existing",
    ("replace", "cancelled"): "existing",
    ("reschedule", "ready"): "rescheduled",
    ("reschedule", "running"): "running",
    ("reschedule", "done"): "existing",
    ("reschedule", "dead"): "existing",
    ("reschedule", "cancelled"): "existing",
}
FORMS = ("add", "bulk", "connection")


def holder(engine: Engine, status: str, **columns: Any) -> int:
    """A job in this status that holds the key "x"."""
    own = {**keyed("x", scope="row"), "payload": {"n": 1}, "attempts": 2, **columns}
    if status == "running":
        return add_running(engine, uuid4(), **own)
    finished = {} if status == "ready" else {"finished_at": LATER}
    return add_job(engine, status=status, **finished, **own)


def send(client: Client, form: str, *new: Job) -> list[Enqueued]:
    """Enqueue in one of the ways, beside a row of the caller's own, and commit."""

    def in_session(session: Session) -> list[Enqueued]:
        session.add(Document(title="mine"))
        if form == "bulk":
            return enqueue_many(session, new)
        session.add_all(new)
        session.flush()
        return [job.enqueued for job in new if job.enqueued]

    if form == "connection":
        return client.run_on_connection(lambda connection: enqueue_many(connection, new))
    return client.run(in_session)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("on_conflict", "status"), MATRIX)
def test_what_becomes_of_a_taken_key(
    on_conflict: Any, status: str, form: str, application: Engine, client: Client
) -> None:
    """Told by outcome, id and status; only a job that waits is changed, and only where that was asked for."""
    held = holder(application, status)
    before = read_job(application, held)
    new = enqueue("new", {"n": 2}, run_at=LATER, priority=1, idempotency_key="x", on_conflict=on_conflict)
    outcome: Any = MATRIX[on_conflict, status]
    assert send(client, form, new) == [Enqueued(held, outcome, before.status)]
    after = read_job(application, held)
    if outcome == "replaced":
        asked = ("new", {"n": 2}, LATER, 1)
        assert (after.kind, after.payload, after.run_at, after.priority) == asked
        assert (after.attempts, after.returned, after.idempotency_key) == (2, 2, "x")
    elif outcome == "rescheduled":
        changed = {"run_at": LATER, "updated_at": after.updated_at}
        assert after._asdict() == before._asdict() | changed
    else:
        assert after == before
    assert rows(application, "id") == [held]


@pytest.mark.parametrize("on_conflict", ["existing", "replace", "reschedule", "raise"])
def test_a_free_key_is_taken(on_conflict: Any, application: Engine, client: Client) -> None:
    """Whatever is to be done about a holder, without one the job is created."""
    (told,) = send(client, "add", enqueue("k", idempotency_key="x", on_conflict=on_conflict))
    assert told == Enqueued(rows(application, "id")[0], "created", told.status)
    assert told.status == "ready"


@pytest.mark.parametrize("status", ["ready", "running", "done", "dead", "cancelled"])
@pytest.mark.parametrize("form", FORMS)
def test_a_refusal_leaves_the_transaction_as_it_was(
    form: str, status: str, application: Engine, client: Client
) -> None:
    """The error names the holder; jobs of the same call are not there, everything else is, and the commit succeeds."""
    held = holder(application, status)
    new = [enqueue("other"), enqueue("new", idempotency_key="x", on_conflict="raise"), enqueue("other")]

    def attempt(target: Any) -> DuplicateKeyError:
        if isinstance(target, Session):
            target.add(Document(title="mine"))
            target.flush()
        if form == "add":
            target.add_all(new)
        with pytest.raises(
            DuplicateKeyError, match=rf"'x' is held by job {held} \(test\), which is {status}"
        ) as caught:
            target.flush() if form == "add" else enqueue_many(target, new)
        if form == "add":
            assert [job for job in new if job in target] == [new[0], new[2]]
        return caught.value

    error = client.run_on_connection(attempt) if form == "connection" else client.run(attempt)
    assert (error.idempotency_key, error.job_id, error.status) == ("x", held, status)
    # The session goes on with what it still has; a bulk call inserts all or nothing.
    assert len(rows(application, "id")) == (3 if form == "add" else 1)
    with Session(application) as session:
        assert session.query(Document).count() == (0 if form == "connection" else 1)


@pytest.mark.parametrize("form", FORMS)
def test_several_jobs_with_one_key_come_one_after_another(
    form: str, application: Engine, client: Client
) -> None:
    """In the order in which they were given: the last one that replaces or reschedules stands."""
    told = send(
        client,
        form,
        enqueue("first", {"n": 1}, idempotency_key="x"),
        enqueue("second", {"n": 2}, idempotency_key="x", on_conflict="replace"),
        enqueue("third", {"n": 3}, idempotency_key="x"),
        enqueue("fourth", run_at=LATER, idempotency_key="x", on_conflict="reschedule"),
        enqueue("fifth", idempotency_key="y", on_conflict="reschedule"),
    )
    outcomes = [enqueued.outcome for enqueued in told]
    assert outcomes == ["created", "replaced", "existing", "rescheduled", "created"]
    assert rows(application, "kind", "payload", "run_at")[0] == ("second", {"n": 2}, LATER)
    with pytest.raises(DuplicateKeyError):
        send(client, form, *(enqueue("k", idempotency_key="z", on_conflict="raise") for _ in range(2)))
    assert rows(application, "idempotency_key") == ["x", "y"]


def test_an_object_of_the_session_shows_what_became_of_its_row(application: Engine, session: Session) -> None:
    """Also after a savepoint in which it was replaced is rolled back."""
    session.add(first := enqueue("first", {"n": 1}, idempotency_key="x"))
    session.flush()
    savepoint = session.begin_nested()
    session.add(second := enqueue("second", {"n": 2}, idempotency_key="x", on_conflict="replace"))
    session.flush()
    assert first.enqueued
    assert second.enqueued == Enqueued(first.enqueued.id, "replaced")
    assert second not in session
    assert (first.kind, first.payload, second.kind) == ("second", {"n": 2}, "second")
    savepoint.rollback()
    assert (first.kind, first.payload) == ("first", {"n": 1})
    assert second.payload == {"n": 2}
    session.add(second)
    session.commit()
    assert (first.kind, first.payload) == ("second", {"n": 2})
    assert rows(application, "kind") == ["second"]


def test_an_object_is_read_anew_when_a_bulk_call_has_changed_its_row(client: Client) -> None:
    """As after a flush that changed it, and after the rollback of a savepoint."""

    def work(session: Session) -> list[tuple[str, Any]]:
        session.add(first := enqueue("first", {"n": 1}, idempotency_key="x"))
        session.flush()
        savepoint = session.begin_nested()
        again = enqueue("second", {"n": 2}, idempotency_key="x", on_conflict="replace")
        assert first.enqueued
        told = enqueue_many(session, [again])
        assert told == [Enqueued(first.enqueued.id, "replaced")]
        shown = [(first.kind, first.payload)]
        savepoint.rollback()
        return [*shown, (first.kind, first.payload)]

    assert client.run(work) == [("second", {"n": 2}), ("first", {"n": 1})]


def test_a_document_points_at_the_job_that_it_replaced(application: Engine, session: Session) -> None:
    """Through the application's own foreign key, as for every other conflict."""
    held = holder(application, "ready")
    session.add(
        document := Document(title="d", job=enqueue("new", idempotency_key="x", on_conflict="replace"))
    )
    session.commit()
    assert document.job_id == held
    assert document.job
    assert document.job.kind == "new"


def test_a_key_of_an_unfinished_job(application: Engine, client: Client) -> None:
    """It is taken until that job has ended, and free for the next one then."""

    def again() -> Enqueued:
        return send(client, "add", enqueue("k", idempotency_key="x", key_scope="unfinished"))[0]

    first = again()
    assert again() == Enqueued(first.id, "existing")
    change(application, first.id, status="done", finished_at=LATER, unique_key=None)
    second = again()
    assert second.created
    assert rows(application, "key_scope", "unique_key") == [("unfinished", None), ("unfinished", "x")]


def right_after_the_insert(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Something happens to the holder when the INSERT has found the key taken."""
    real = inserts._insert_once
    once = iter([act])

    def insert(*arguments: Any) -> object:
        rows = real(*arguments)
        next(once, lambda: None)()
        return rows

    monkeypatch.setattr(inserts, "_insert_once", insert)


@pytest.mark.parametrize("on_conflict", ["replace", "reschedule"])
def test_a_holder_that_begins_to_run_just_then(
    on_conflict: Any, application: Engine, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left alone, and the caller is told that this run may not see what he commits."""
    held = holder(application, "ready")
    claimed = {"status": "running", "lease_token": uuid4(), "lease_until": LATER}
    right_after_the_insert(monkeypatch, lambda: change(application, held, **claimed))
    session.add(job := enqueue("new", idempotency_key="x", on_conflict=on_conflict))
    session.commit()
    assert job.enqueued == Enqueued(held, "running", JobStatus.RUNNING)
    assert read_job(application, held).kind == "test"


def test_a_holder_that_the_database_keeps_as_it_is(application: Engine, session: Session) -> None:
    """A trigger of the application's own: the error names the job, and what may be the matter."""
    held = holder(application, "ready")
    refuse(application, held, "RETURN NULL")
    session.add(enqueue("new", idempotency_key="x", on_conflict="replace"))
    with pytest.raises(EnqueueError, match=rf"job {held} has the idempotency key 'x'.* does a trigger"):
        session.flush()
