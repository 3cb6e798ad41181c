"""Foreign keys to a job, and payloads that name a row of the same flush."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, event, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from sa_jobqueue import Enqueued, EnqueueError, Job, enqueue, ref
from sa_jobqueue.entry import adoption
from tests.entry.application import Comment, Document, Review, Ticket
from tests.entry.conftest import Client
from tests.entry.counting import rows, statements


def test_a_relationship_to_a_new_job_fills_the_foreign_key(client: Client, application: Engine) -> None:
    """The cascade adds the job, its id is known before the row that points at it is written."""

    def work(session: Session) -> tuple[int | None, int]:
        document = Document(title="a", job=enqueue("k", idempotency_key="x"))
        session.add(document)
        session.flush()
        assert document.job
        return document.job_id, document.job.id

    job_id, expected = client.run(work)
    assert job_id == expected
    assert rows(application, "id") == [expected]


def test_a_relationship_to_a_duplicate_points_at_the_holder(client: Client, application: Engine) -> None:
    """Whether the holder is a stored row, loaded, or another object of the same flush."""

    def work(session: Session) -> list[int | None]:
        first, second = (Document(title=title, job=enqueue("k", idempotency_key="x")) for title in "ab")
        session.add_all([first, second])
        session.flush()
        assert first.job is second.job
        third = Document(title="c", job=enqueue("k", idempotency_key="x"))
        session.add(third)
        session.flush()
        assert third.job is first.job
        return [first.job_id, second.job_id, third.job_id]

    ids = client.run(work)
    assert ids == rows(application, "id") * 3
    assert (
        client.run(lambda session: session.add(Document(title="d", job=enqueue("k", idempotency_key="x"))))
        is None
    )
    with Session(application) as session:
        assert session.scalars(select(Document.job_id)).all() == rows(application, "id") * 4


def test_many_objects_with_one_key_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, application: Engine, session: Session
) -> None:
    """One look at the session's objects per insert, not one for each duplicate: 2,000 of them took 46 seconds."""
    looks: list[Session] = []
    real = adoption.pointers
    monkeypatch.setattr(adoption, "pointers", lambda session: looks.append(session) or real(session))
    documents = [Document(title=f"{n}", job=enqueue("k", idempotency_key=f"{n % 2}")) for n in range(100)]
    session.add_all([*documents, every := Document(title="every", jobs=[one.job for one in documents])])
    session.flush()
    assert len(looks) == 1
    first, second = ids = session.scalars(select(Job.id).order_by(Job.idempotency_key)).all()
    assert [document.job_id for document in documents] == [first, second] * 50
    assert [job.id for job in every.jobs] == list(ids)


def test_a_collection_of_jobs_holds_each_job_once(application: Engine, session: Session) -> None:
    """A many-to-many relationship: duplicates give way to the holder instead of a second association row."""
    document = Document(title="a", jobs=[enqueue("k", idempotency_key=key) for key in ("x", "y", "x")])
    session.add(document)
    session.commit()
    assert sorted(job.id for job in document.jobs) == rows(application, "id")
    document.jobs.append(enqueue("k", idempotency_key="y"))
    document.jobs.append(enqueue("k"))
    session.commit()
    assert sorted(job.id for job in document.jobs) == rows(application, "id")
    assert len(rows(application, "id")) == 3


@pytest.mark.parametrize("holder", ["none", "stored", "loaded"])
def test_what_a_new_job_holds_over_a_relationship_of_two_sides(
    holder: str, application: Engine, session: Session
) -> None:
    """The other side writes the foreign key, to the job's own row or to that of the holder of its key."""
    if holder != "none":
        with Session(application) as other, other.begin():
            other.add(enqueue("k", idempotency_key="x"))
    kept = session.scalars(select(Job)).all() if holder == "loaded" else []
    job: Any = enqueue("k", idempotency_key="x")
    job.comments.append(comment := Comment())
    session.add(job)
    session.commit()
    assert [comment.job_id] == rows(application, "id")
    assert comment.job
    assert comment.job.comments == [comment]
    assert comment.job is (kept[0] if kept else job)


def test_what_a_new_job_holds_over_a_relationship_of_one_side_is_refused(
    application: Engine, session: Session
) -> None:
    """Its foreign key would be lost in silence, as the unit of work meets a job that is stored already."""
    job: Any = enqueue("k")
    job.reviews.append(review := Review())
    session.add(job)
    with statements(application) as seen, pytest.raises(EnqueueError, match=r"Job\.reviews.*back_populates"):
        session.flush()
    assert seen == []
    job.reviews.remove(review)
    session.flush()
    job.reviews.append(review)
    session.commit()
    assert [review.job_id] == rows(application, "id")


def test_a_payload_names_a_row_of_the_same_flush(client: Client, application: Engine) -> None:
    """The key is filled in during the flush, keyed or not, and the job is an ordinary object afterwards."""

    def work(session: Session) -> tuple[int, list[Enqueued | None]]:
        document = Document(title="a")
        plain = enqueue("k", {"ids": [{"document": ref(document)}]})
        keyed, repeated = (enqueue("k", ref(document), idempotency_key="x") for _ in range(2))
        assert plain.payload["ids"] != [{"document": None}]
        session.add_all([plain, keyed, repeated, document])
        session.flush()
        assert plain in session
        assert plain.payload == {"ids": [{"document": document.id}]}
        assert (keyed.payload, repeated.enqueued) == (document.id, Enqueued(keyed.id, "existing"))
        return document.id, [plain.enqueued, keyed.enqueued]

    document_id, told = client.run(work)
    plain, keyed = (enqueued.id for enqueued in told if enqueued)
    assert dict(rows(application, "id", "payload")) == {
        plain: {"ids": [{"document": document_id}]},
        keyed: document_id,
    }


def test_references_cost_one_more_insert_whatever_their_number(application: Engine, session: Session) -> None:
    """Jobs that wait for the same flush are inserted together."""
    documents = [Document(title=f"{n}") for n in range(100)]
    session.add_all(documents)
    session.add_all(
        [enqueue("k", {"id": ref(document)}, idempotency_key=document.title) for document in documents]
    )
    session.add(enqueue("k"))
    with statements(application) as seen:
        session.flush()
    assert len([text for text in seen if text.startswith("INSERT INTO jobqueue_jobs")]) == 2
    session.commit()
    stored = dict(rows(application, "unique_key", "payload"))
    assert {document.title: {"id": document.id} for document in documents} == {
        key: payload for key, payload in stored.items() if key
    }


def test_a_reference_to_a_stored_row_waits_for_nothing(application: Engine, session: Session) -> None:
    """A primary key is known without SQL, also of an expired object."""
    session.add_all([document := Document(title="a"), ticket := Ticket(title="b")])
    session.commit()
    with statements(application) as seen:
        values = [ref(document), ref(ticket)]
    assert seen == []
    assert values[0] == document.id
    job = enqueue("k", {"ticket": values[1]})
    assert job.payload == {"ticket": str(ticket.id)}
    assert ref(document, "title") == "a"
    session.add(enqueue("k", {"document_id": ref(document)}))
    session.commit()
    assert rows(application, "payload") == [{"document_id": document.id}]


def test_a_row_that_is_stored_between_ref_and_flush(application: Engine, session: Session) -> None:
    """The placeholder finds the identity that its object has by then."""
    job = enqueue("k", {"document_id": ref(document := Document(title="a"))})
    session.add(document)
    session.commit()
    session.add(job)
    session.commit()
    assert rows(application, "payload") == [{"document_id": document.id}]


def test_a_key_made_by_the_client_needs_no_waiting(application: Engine, session: Session) -> None:
    """Then even both may point at each other; a UUID becomes its text."""
    ticket = Ticket(id=UUID(int=5), title="a")
    ticket.job = enqueue("k", {"ticket": ref(ticket)})
    session.add(ticket)
    session.commit()
    assert rows(application, "id", "payload") == [(ticket.job_id, {"ticket": str(UUID(int=5))})]


def test_a_reference_back_is_refused_before_any_sql(application: Engine, session: Session) -> None:
    """Each would need the other's key; the message names the relationship, and the session can go on."""
    document = Document(title="a")
    document.job = enqueue("k", {"document_id": ref(document)})
    session.add(document)
    with (
        statements(application) as seen,
        pytest.raises(EnqueueError, match=r"Document\.job needs the job's id"),
    ):
        session.flush()
    assert seen == []
    job, document.job = document.job, None
    session.commit()
    assert rows(application, "payload") == [{"document_id": document.id}]
    assert job.enqueued


def test_a_collection_that_points_back_is_refused(session: Session) -> None:
    """The same cycle over a many-to-many relationship."""
    document = Document(title="a")
    document.jobs.append(enqueue("k", {"document_id": ref(document)}))
    session.add(document)
    with pytest.raises(EnqueueError, match=r"Document\.jobs"):
        session.flush()


def test_a_job_may_refer_to_another_job(application: Engine, session: Session) -> None:
    """Chains are inserted in the order in which their ids become known."""
    document = Document(title="a")
    first = enqueue("first", idempotency_key="x")
    second = enqueue("second", {"after": ref(first)})
    third = enqueue("third", {"after": ref(second), "document_id": ref(document)})
    fourth = enqueue("fourth", {"after": ref(third)})
    session.add_all([fourth, third, second, first, document])
    session.commit()
    ids = dict(rows(application, "kind", "id"))
    assert dict(rows(application, "kind", "payload")) == {
        "first": {},
        "second": {"after": ids["first"]},
        "third": {"after": ids["second"], "document_id": document.id},
        "fourth": {"after": ids["third"]},
    }


def test_a_reference_to_a_duplicate_is_the_holders_id(application: Engine, session: Session) -> None:
    """The object outside the session still knows the job that stands for it."""
    first, second = (enqueue("k", idempotency_key="x") for _ in range(2))
    session.add_all([first, second, enqueue("after", {"job": ref(second)})])
    session.commit()
    assert rows(application, "payload")[1] == {"job": first.id}


def test_an_object_of_another_session_is_refused(application: Engine, session: Session) -> None:
    """A forgotten session.add() is named before any SQL; a deleted object is no better."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add(job)
    with (
        statements(application) as seen,
        pytest.raises(EnqueueError, match=r"ref\(Document\).*session\.add\(\)"),
    ):
        session.flush()
    assert seen == []
    session.add(document)
    session.commit()
    session.add(other := Document(title="b"))
    again = enqueue("k", {"document_id": ref(other)})
    session.flush()
    session.delete(other)
    session.add(again)
    with pytest.raises(EnqueueError, match="being deleted"):
        session.flush()
    session.rollback()
    assert rows(application, "payload") == [{"document_id": document.id}]


def test_a_row_that_can_not_be_named_is_refused_at_the_call() -> None:
    """A wrong attribute or a plain object shows up where ref() is written."""
    with pytest.raises(ValueError, match=r"Document has no column 'titel', did you mean 'title'"):
        ref(Document(title="a"), "titel")
    with pytest.raises(ValueError, match="no column 'job'"):
        ref(Document(title="a"), "job")
    with pytest.raises(TypeError, match="mapped class, got int"):
        ref(7)
    with pytest.raises(TypeError, match="mapped class, got"):
        ref(Document)


def test_jobs_that_refer_to_each_other_are_refused(application: Engine, session: Session) -> None:
    """Only jobs from the constructor can be made so; none of the two could ever be inserted."""
    first, second = Job(kind="first"), Job(kind="second")
    first.payload, second.payload = {"next": ref(second)}, {"next": ref(first)}
    session.add_all([first, second])
    with statements(application) as seen, pytest.raises(EnqueueError, match="refers back to it"):
        session.flush()
    assert seen == []
    myself = Job(kind="myself")
    myself.payload = ref(myself)
    session.expunge_all()
    session.add(myself)
    with pytest.raises(EnqueueError, match="refers back to it"):
        session.flush()


@pytest.mark.parametrize("autoflush", [False, True])
def test_a_waiting_job_outlives_a_listener_that_raises(
    autoflush: bool, application: Engine, session: Session
) -> None:
    """An application's own validation may end the flush after our listener ran: the job is pending as before."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add_all([document, job, plain := enqueue("plain")])

    def refuse(*_: object) -> None:
        event.remove(session, "before_flush", refuse)
        raise RuntimeError("not valid")

    event.listen(session, "before_flush", refuse)
    with pytest.raises(RuntimeError, match="not valid"):
        session.scalars(select(Document)).all() if autoflush else session.flush()
    assert job in session.new
    assert plain in session
    session.commit()
    assert rows(application, "kind", "payload") == [("plain", {}), ("k", {"document_id": document.id})]


def test_a_waiting_job_whose_row_is_taken_out_is_refused(application: Engine, session: Session) -> None:
    """A later listener expunges the row, and nothing else is left to flush: no job may vanish in silence."""
    document = Document(title="a")
    session.add_all([document, enqueue("k", {"document_id": ref(document)})])
    event.listen(session, "before_flush", lambda session, *_: session.expunge(document), once=True)
    with pytest.raises(EnqueueError, match=r"ref\(Document\).*not in the session"):
        session.commit()
    session.rollback()
    assert rows(application, "id") == []


def test_a_waiting_job_that_is_taken_out_stays_out(application: Engine, session: Session) -> None:
    """Whoever expunges it in a listener means it; the rest of the flush goes on."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add_all([document, job])
    event.listen(session, "before_flush", lambda session, *_: session.expunge(job), once=True)
    session.commit()
    assert document.id
    assert rows(application, "id") == []
    session.add(job)
    session.commit()
    assert rows(application, "payload") == [{"document_id": document.id}]


def test_a_pointer_to_a_waiting_job_that_a_later_listener_makes_is_refused(
    application: Engine, session: Session
) -> None:
    """The job has no id during the flush: the foreign key would be empty, and nobody would be told."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add_all([document, job])
    event.listen(session, "before_flush", lambda *_: setattr(document, "job", job), once=True)
    with pytest.raises(EnqueueError, match=r"Document\.job needs the job's id"):
        session.flush()
    session.rollback()
    assert rows(application, "id") == []


def test_a_flush_that_fails_takes_its_waiting_jobs_along(application: Engine, session: Session) -> None:
    """As for every pending object: out of the session with the rollback, and free to be added again."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    savepoint = session.begin_nested()
    session.add_all([document, job, Document(title=None)])
    with pytest.raises(IntegrityError):
        session.flush()
    savepoint.rollback()
    assert job not in session
    session.add_all([document, job])
    session.commit()
    assert rows(application, "payload") == [{"document_id": document.id}]


def test_a_waiting_job_is_new_until_it_is_inserted(session: Session) -> None:
    """Listeners of the application see it in `session.new`, as every object of that flush."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add_all([document, job])
    seen: list[bool] = []
    event.listen(session, "after_flush", lambda session, _: seen.append(job in session.new), once=True)
    session.flush()
    assert seen == [True]
    assert inspect(job).persistent
