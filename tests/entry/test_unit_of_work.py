"""Jobs in an ordinary flush: created, or told which job has the key already."""

from __future__ import annotations

import gc
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue import Enqueued, EnqueueError, Job, JobStatus, Period, enqueue, enqueue_many, ref
from sa_jobqueue.models import jobs
from tests.entry.application import Document
from tests.entry.conftest import Client
from tests.entry.counting import rows, statements


def test_a_job_is_inserted_with_what_was_asked_for(client: Client, application: Engine) -> None:
    """Every argument of enqueue() reaches its column, on every driver."""
    due = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)

    def work(session: Session) -> None:
        session.add(
            enqueue(
                "document.embed",
                {"document_id": 7},
                queue="ai",
                run_at=due,
                priority=0,
                max_attempts=8,
                expires_at=due + timedelta(days=1),
                idempotency_key="embed:7",
            )
        )

    client.run(work)
    names = ("kind", "payload", "queue", "run_at", "priority", "max_attempts", "expires_at")
    assert rows(application, *names) == [
        ("document.embed", {"document_id": 7}, "ai", due, 0, 8, due + timedelta(days=1))
    ]
    assert rows(application, "idempotency_key", "key_scope", "unique_key") == [("embed:7", "row", "embed:7")]


def test_what_is_left_out_is_the_tables_own_default(application: Engine, session: Session) -> None:
    """A job by name and a row by plain SQL must not differ."""
    session.add(enqueue("k"))
    session.execute(jobs.insert().values(kind="k"))
    session.commit()
    names = [column.name for column in jobs.c if column.name != "id"]
    ours, plain = rows(application, *names)
    assert ours == plain


def test_the_object_shows_its_row_without_another_query(application: Engine, session: Session) -> None:
    """After the flush every column of the object is what the database holds."""
    job = enqueue("k", {"a": [1]}, delay=timedelta(hours=1), idempotency_key="x")
    assert job.run_at == timedelta(hours=1)  # type: ignore[comparison-overlap]
    session.add(job)
    session.flush()
    with statements(application) as seen:
        shown = {column.name: getattr(job, column.name) for column in jobs.c}
    assert seen == []
    assert shown == dict(session.connection().execute(select(jobs)).mappings().one())
    assert job.status == JobStatus.READY
    assert job.run_at - job.created_at == timedelta(hours=1)
    assert session.get(Job, job.id) is job
    assert not session.dirty
    assert not session.new


def test_a_taken_key_is_no_error_and_names_the_holder(client: Client, application: Engine) -> None:
    """The caller's own rows are stored, the key is held once, and the caller is told by which job."""

    def first(session: Session) -> Enqueued:
        session.add(job := enqueue("k", {"n": 1}, idempotency_key="x"))
        session.commit()
        assert job.enqueued
        return job.enqueued

    def second(session: Session) -> tuple[Enqueued | None, int, Any]:
        session.add(Document(title="order"))
        session.add(job := enqueue("other", {"n": 2}, idempotency_key="x", priority=0))
        session.flush()
        return job.enqueued, job.id, (job.kind, job.priority, job.payload)

    created = client.run(first)
    assert created.created
    enqueued, shown_id, shown = client.run(second)
    assert enqueued == Enqueued(created.id, "existing")
    assert shown_id == created.id
    assert shown == ("k", 5, {"n": 1})
    assert rows(application, "id", "payload") == [(created.id, {"n": 1})]
    with Session(application) as session:
        assert session.scalars(select(Document.title)).all() == ["order"]


def test_the_same_key_twice_in_one_flush(session: Session) -> None:
    """The first object is the job; the second is told so and can be read, outside the session."""
    first, second = (enqueue("k", {"n": n}, idempotency_key="x") for n in (1, 2))
    session.add_all([first, second])
    session.flush()
    assert first.enqueued
    assert first.enqueued.created
    assert second.enqueued == Enqueued(first.id, "existing")
    assert first in session
    assert second not in session
    assert (second.id, second.payload) == (first.id, {"n": 1})
    session.commit()
    assert second.id == second.enqueued.id


def test_the_same_key_in_two_flushes_of_one_session(session: Session) -> None:
    """The identity map keeps one object for the row, whoever asks again."""
    session.add(first := enqueue("k", idempotency_key="x"))
    session.flush()
    session.add(second := enqueue("k", idempotency_key="x"))
    session.flush()
    assert second.enqueued == Enqueued(first.id, "existing")
    assert list(session) == [first]
    session.add(second)
    session.flush()
    assert second.enqueued == Enqueued(first.id, "existing")


def test_a_holder_that_the_session_has_loaded_stays_its_object(application: Engine, session: Session) -> None:
    """No second object for one row, and no warning about the identity map."""
    with Session(application) as other, other.begin():
        other.add(enqueue("k", idempotency_key="x"))
    holder = session.scalars(select(Job)).one()
    session.add(job := enqueue("k", idempotency_key="x"))
    session.flush()
    assert job not in session
    assert job.enqueued == Enqueued(holder.id, "existing")
    session.commit()


def test_two_new_objects_for_one_stored_key(application: Engine, session: Session) -> None:
    """The first becomes the stored job, the second is told."""
    with Session(application) as other, other.begin():
        other.add(stored := enqueue("k", idempotency_key="x"))
    first, second = (enqueue("k", idempotency_key="x") for _ in range(2))
    session.add_all([first, second])
    session.flush()
    assert stored.enqueued
    assert first.enqueued == second.enqueued == Enqueued(stored.enqueued.id, "existing")
    assert first in session
    assert second not in session


@pytest.mark.parametrize("keyed", [True, False])
def test_a_thousand_jobs_are_one_insert(keyed: bool, application: Engine, session: Session) -> None:
    """Batching survives: one statement, every object with its own row's id."""
    new = [
        enqueue(
            "k", {"n": n}, idempotency_key=f"key {n % 7} {n}" if keyed else None, delay=timedelta(seconds=n)
        )
        for n in range(1000)
    ]
    session.add_all(new)
    with statements(application) as seen:
        session.flush()
    assert len(seen) == 1
    assert seen[0].startswith("INSERT INTO jobqueue_jobs")
    session.commit()
    stored = dict(rows(application, "id", "payload"))
    assert {job.enqueued.id: job.payload for job in new if job.enqueued} == stored
    assert len(stored) == 1000


def test_a_thousand_duplicates_are_two_statements(application: Engine, session: Session) -> None:
    """Duplicates cost one read, whatever their number."""
    for _ in range(2):
        with statements(application) as seen:
            session.add_all([enqueue("k", idempotency_key=f"{n}") for n in range(1000)])
            session.commit()
        session.expunge_all()
    assert [text.split()[0] for text in seen] == ["INSERT", "SELECT", "COMMIT"]


def test_without_a_key_ids_follow_the_order_of_add(session: Session) -> None:
    """The objects must not get each other's rows: RETURNING promises no order."""
    new = [enqueue("k", n) for n in range(50)]
    session.add_all(new)
    session.flush()
    assert [job.id for job in new] == sorted(job.id for job in new)
    assert session.execute(select(jobs.c.payload).order_by(jobs.c.id)).scalars().all() == list(range(50))


def test_keyed_jobs_of_a_flush_get_ids_in_the_order_of_their_keys(session: Session) -> None:
    """Sorted keys keep two flushes with the same keys from deadlocking."""
    new = [enqueue("k", idempotency_key=key) for key in ("c", "a", "b")]
    session.add_all(new)
    session.flush()
    assert [job.idempotency_key for job in sorted(new, key=lambda job: job.id)] == ["a", "b", "c"]


def test_nothing_is_sent_and_no_column_is_read_for_a_flush_without_jobs(
    application: Engine, session: Session
) -> None:
    """Other people's flushes are none of ours."""
    session.add(document := Document(title="a"))
    with statements(application) as seen:
        session.flush()
    assert [text for text in seen if "jobqueue_jobs" in text] == []
    session.add(enqueue("k"))
    session.flush()
    document.title = "b"
    with statements(application) as seen:
        session.commit()
    assert [text for text in seen if "jobqueue_jobs" in text] == []


def test_the_library_ends_no_transaction(application: Engine) -> None:
    """The caller alone commits and rolls back: no COMMIT, ROLLBACK or SAVEPOINT comes from here."""
    with statements(application) as seen, Session(application) as session:
        session.add_all([enqueue("k", idempotency_key="x"), enqueue("k")])
        session.flush()
        session.add_all([enqueue("k", idempotency_key="x")])
        session.flush()
        enqueue_many(session, [enqueue("k", idempotency_key="x")])
        assert [text.split()[0] for text in seen] == ["INSERT"] + ["INSERT", "SELECT"] * 2
        session.commit()
    assert [text for text in seen if text.isupper() and " " not in text] == ["COMMIT"]


def test_the_payload_is_fixed_at_the_call(application: Engine, session: Session) -> None:
    """What the caller does to its dict afterwards, before or after the flush, changes nothing."""
    payload = {"a": [1], "f": 1e16}
    session.add(job := enqueue("k", payload))
    payload["a"].append(2)  # type: ignore[attr-defined]
    job.payload["a"].append(3)
    session.flush()
    payload["b"] = []
    session.commit()
    assert rows(application, "payload") == [{"a": [1], "f": 1e16}]


@pytest.mark.parametrize("expire", [True, False])
def test_the_outcome_outlives_commit_and_close(expire: bool, client: Client) -> None:
    """`job.enqueued` needs no SQL: it can be read after commit, expiry and close, and by asyncio code."""

    def work(session: Session) -> Job:
        session.add(job := enqueue("k", idempotency_key="x"))
        return job

    job = client.run(work, expire_on_commit=expire)
    assert job.enqueued
    assert job.enqueued.created
    assert job.enqueued.id > 0
    assert "k" not in repr(job) or not expire


def test_a_query_that_autoflushes_finds_the_job(session: Session) -> None:
    """The hook works inside a flush that a query has caused."""
    session.add(job := enqueue("k", idempotency_key="x"))
    assert session.scalars(select(Job)).one() is job


def test_sessions_of_every_make_have_the_hook(application: Engine) -> None:
    """sessionmaker with a subclass, scoped_session, and a session that is older than the listener's call."""

    class Own(Session):
        """As SQLModel's Session is one."""

    for make in (sessionmaker(application, class_=Own), scoped_session(sessionmaker(application))):
        session = make()
        session.add(job := enqueue("k", idempotency_key="x"))
        session.commit()
        assert job.enqueued
        session.close()
    assert rows(application, "unique_key") == ["x"]


def test_jobs_go_to_the_database_that_their_class_is_bound_to(application: Engine) -> None:
    """A session over two databases asks for the one of Job."""
    elsewhere = create_engine("sqlite://")
    with Session(binds={Document: elsewhere, Job: application}) as session:
        session.add(job := enqueue("k"))
        session.commit()
        assert job.enqueued
    assert rows(application, "kind") == ["k"]


def test_a_database_that_is_not_postgresql_is_refused_clearly() -> None:
    """The message names the dialect and what to bind; the session can still be used."""
    with Session(create_engine("sqlite://")) as session:
        session.add(job := enqueue("k"))
        with pytest.raises(EnqueueError, match=r"sqlite.*Session\(binds="):
            session.flush()
        session.expunge(job)
        session.commit()


def test_a_merged_pending_job_keeps_what_was_asked_for(application: Engine, session: Session) -> None:
    """merge() makes another object from the attributes: also the delay and the key must be in it."""
    job = enqueue("k", {"a": 1}, delay=timedelta(days=1), idempotency_key="x", queue="q", priority=0)
    merged = session.merge(job)
    assert merged is not job
    session.commit()
    assert merged.enqueued
    assert rows(application, "kind", "payload", "queue", "priority", "unique_key") == [
        ("k", {"a": 1}, "q", 0, "x")
    ]
    assert rows(application, "run_at")[0] - rows(application, "created_at")[0] == timedelta(days=1)


@pytest.mark.parametrize(
    "asked",
    [
        {"idempotency_key": "x", "key_scope": "unfinished"},
        {"idempotency_key": "x", "key_scope": Period(timedelta(days=1))},
        {"idempotency_key": "x", "on_conflict": "replace"},
        {"unique_by": ["n"]},
    ],
)
def test_a_merged_job_never_has_another_key_than_was_asked_for(
    asked: dict[str, Any], application: Engine, session: Session
) -> None:
    """What the attributes can't say is refused: with a key that is taken for longer, later jobs would be lost."""
    merged = session.merge(enqueue("k", {"n": ref(Document(title="d"))}, **asked))
    with pytest.raises(ValueError, match="key_scope"):
        session.flush()
    session.expunge(merged)
    session.commit()
    assert rows(application, "id") == []


def test_a_job_from_the_constructor_takes_the_same_way(application: Engine, session: Session) -> None:
    """It is checked at the flush, and fixed from then on."""
    session.add(job := Job(kind="k", payload={"a": 1}, idempotency_key="x"))
    session.add(Job(kind="k", idempotency_key="x"))
    session.commit()
    assert job.enqueued
    assert rows(application, "payload", "key_scope") == [({"a": 1}, "row")]
    for wrong, says in (
        (Job(kind="k", payload={"a": b""}), r"\$\.a"),
        (Job(kind="k", status="done"), r"Job\(status\): the queue alone writes this"),
        (Job(payload={}), "kind"),
    ):
        session.add(wrong)
        with pytest.raises((TypeError, ValueError), match=says):
            session.flush()
        session.expunge(wrong)
    session.commit()


def test_a_job_that_a_later_listener_adds_is_refused(session: Session) -> None:
    """Past our own listener the unit of work would insert it without the guarantee for its key."""

    @event.listens_for(session, "before_flush")
    def too_late(session: Session, *_: object) -> None:
        session.add(enqueue("k", idempotency_key="x"))

    session.add(Document(title="a"))
    with pytest.raises(EnqueueError, match=r"enqueue_many\(session, \[job\]\)"):
        session.flush()


def test_a_job_that_after_flush_adds_goes_into_the_next_flush(application: Engine, session: Session) -> None:
    """Applications turn their own events into jobs there; commit() flushes until nothing is left."""

    @event.listens_for(session, "after_flush")
    def on_flush(session: Session, *_: object) -> None:
        session.add_all(
            [enqueue("k", {"title": new.title}) for new in session.new if isinstance(new, Document)]
        )

    session.add(Document(title="a"))
    session.commit()
    assert rows(application, "payload") == [{"title": "a"}]


def test_flushing_some_objects_only(application: Engine, session: Session) -> None:
    """A job may come early with them, but one that waits for a row that stays behind is refused, not lost."""
    session.add_all([document := Document(title="a"), enqueue("plain")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # SQLAlchemy 2.1 deprecates the argument
        session.flush([document])
        session.add(enqueue("waiting", ref(late := Document(title="b"))))
        session.add(late)
        with pytest.raises(EnqueueError, match="whole flush"):
            session.flush([document])
    session.commit()
    assert rows(application, "kind", "payload") == [("plain", {}), ("waiting", late.id)]


def test_a_two_phase_session_prepares_its_jobs(application: Engine) -> None:
    """The insert takes part in PREPARE TRANSACTION."""
    with Session(application, twophase=True) as session:
        session.add(job := enqueue("k"))
        session.commit()
        assert job.enqueued
    assert rows(application, "kind") == ["k"]


def test_a_job_that_is_read_again_has_its_id_and_no_outcome(session: Session) -> None:
    """The session keeps no object that nobody else keeps: the outcome goes with the one that enqueue() returned."""
    session.add(document := Document(title="a", job=enqueue("k")))
    session.commit()
    gc.collect()
    assert document.job
    assert document.job.enqueued is None
    assert document.job.id == document.job_id
    document.job = kept = enqueue("k")
    session.commit()
    assert document.job is kept
    assert kept.enqueued == Enqueued(document.job_id, "created")
