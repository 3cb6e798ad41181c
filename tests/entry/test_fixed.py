"""A Job is fixed: an assignment is refused at once and names the verb, and the session goes on."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import flag_dirty, flag_modified

from sa_jobqueue import Job, UnfencedWriteError, enqueue
from sa_jobqueue.models import jobs
from tests.entry.application import Document
from tests.entry.counting import rows


@pytest.fixture
def stored(session: Session) -> Job:
    session.add(job := enqueue("k", {"a": 1}, idempotency_key="x"))
    session.commit()
    return session.scalars(select(Job)).one() if job else job


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        (
            "status",
            "done",
            r"settled by what its handler returns.*sa_jobqueue\.admin\.cancel\(session, \[id\]\)",
        ),
        ("run_at", None, r"rescheduled: sa_jobqueue\.admin\.reschedule\(session, \[id\], "),
        ("priority", 0, "rescheduled"),
        ("max_attempts", 99, r"sa_jobqueue\.admin\.redrive\(session, \[id\]\)"),
        ("payload", {}, "enqueue another"),
        ("last_error", "x", "settled by what its handler"),
        ("id", 7, "enqueue another"),
    ],
)
def test_an_assignment_to_a_stored_job_is_refused(
    attribute: str, value: Any, says: str, stored: Job, session: Session, application: Engine
) -> None:
    """The error comes from the line that assigns; what else the session holds is committed."""
    before = rows(application, attribute)
    with pytest.raises(UnfencedWriteError, match=rf"Job {stored.id}: {attribute} .*{says}"):
        setattr(stored, attribute, value)
    session.add(Document(title="a"))
    session.commit()
    assert rows(application, attribute) == before
    assert session.scalars(select(Document.title)).all() == ["a"]


@pytest.mark.parametrize("column", [column.key for column in jobs.columns])
def test_every_column_is_guarded(column: str, stored: Job, session: Session) -> None:
    """del and flag_modified() are changes too; an expired object needs no query to refuse."""
    session.refresh(stored, [column])
    with pytest.raises(UnfencedWriteError):
        setattr(stored, column, object())
    with pytest.raises(UnfencedWriteError):
        delattr(stored, column)
    with pytest.raises(UnfencedWriteError):
        flag_modified(stored, column)
    session.expire(stored)
    with pytest.raises(UnfencedWriteError):
        setattr(stored, column, object())
    assert not session.dirty


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("queue", r"pass queue to enqueue\(\)"),
        ("run_at", r"pass run_at or delay to enqueue\(\)"),
        ("payload", r"pass payload to enqueue\(\)"),
        ("payload_version", r"pass payload_version to enqueue\(\)"),
        ("key_scope", r"pass key_scope to enqueue\(\)"),
        ("status", "the queue alone writes it"),
    ],
)
def test_a_pending_job_is_fixed_too(attribute: str, says: str, application: Engine, session: Session) -> None:
    """What would be ignored at the flush is refused, naming the argument; the request stays what it was."""
    session.add(job := enqueue("k", {"a": 1}, queue="q"))
    with pytest.raises(UnfencedWriteError, match=says):
        setattr(job, attribute, "other")
    session.commit()
    assert rows(application, "queue", "payload") == [("q", {"a": 1})]


def test_deleting_a_job_is_refused_and_can_be_taken_back(
    stored: Job, session: Session, application: Engine
) -> None:
    """A row that a runner may hold is not deleted past its lease; the message says how to go on."""
    session.delete(stored)
    session.add(Document(title="a"))
    with pytest.raises(
        UnfencedWriteError,
        match=r"can't be deleted.*admin\.cancel.*admin\.prune.*session\.expunge\(job\)",
    ):
        session.flush()
    session.expunge(stored)
    session.commit()
    assert rows(application, "kind") == ["k"]
    assert session.scalars(select(Document.title)).all() == ["a"]


def test_deleting_the_holder_and_adding_its_key_in_one_flush_is_refused(
    stored: Job, session: Session, application: Engine
) -> None:
    """The new job would adopt the row that is deleted a moment later, and be lost."""
    session.delete(stored)
    session.add(enqueue("k", idempotency_key="x"))
    with pytest.raises(UnfencedWriteError):
        session.flush()
    session.rollback()
    assert rows(application, "unique_key") == ["x"]


def test_a_change_that_no_event_saw_is_refused_by_the_flush(
    stored: Job, session: Session, application: Engine
) -> None:
    """The net under the listeners: history that arose some other way never becomes an UPDATE."""
    state = stored.__dict__["_sa_instance_state"]
    state._modified_event(stored.__dict__, Job.status.impl, "ready")
    stored.__dict__["status"] = "done"
    with pytest.raises(UnfencedWriteError, match="status"):
        session.flush()
    session.rollback()
    assert rows(application, "status") == ["ready"]


def test_a_dirty_mark_without_a_change_is_no_write(stored: Job, session: Session) -> None:
    """Only a column that would be written counts."""
    flag_dirty(stored)
    session.commit()


def test_merging_an_unchanged_job_is_no_write(stored: Job, application: Engine, session: Session) -> None:
    """merge() assigns every loaded attribute; equal values pass."""
    session.refresh(stored)
    session.expunge(stored)
    with Session(application) as other:
        assert other.merge(stored).id == stored.id
        other.commit()


def test_merging_a_stale_job_is_refused(stored: Job, application: Engine, session: Session) -> None:
    """It would bring an old status back over what a runner wrote since."""
    session.refresh(stored)
    session.expunge(stored)
    with application.begin() as connection:
        connection.execute(jobs.update().values(priority=1))
    with Session(application) as other, pytest.raises(UnfencedWriteError, match=r"session\.get\(Job, id\)"):
        other.merge(stored)
    assert rows(application, "priority") == [1]


def test_a_loaded_job_is_an_ordinary_object_to_read(stored: Job, session: Session) -> None:
    """Refresh, expiry, deferred columns and queries work as for every mapped class."""
    session.refresh(stored)
    session.expire(stored)
    assert (stored.payload, stored.errors, stored.result) == ({"a": 1}, [], None)
    assert session.get(Job, stored.id) is stored
