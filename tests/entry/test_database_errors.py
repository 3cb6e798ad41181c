"""What a caller is told when the database refuses a job: the type as ever, no payload, and what to do."""

from __future__ import annotations

import traceback

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.orm import Session

from sa_jobqueue import enqueue, ref
from sa_jobqueue.store.trouble import sqlstate_of
from tests.entry.application import Document
from tests.entry.conftest import Client

SECRET = "S3CR3T-42"


def add_a_job(session: Session) -> None:
    session.add(enqueue("k", {"token": SECRET}, idempotency_key="x"))


@pytest.fixture
def constrained(application: Engine) -> Engine:
    """An application's own constraint on the table, which no job fulfils."""
    with application.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobqueue_jobs ADD CONSTRAINT app_c CHECK (kind <> 'k')")
    return application


def test_no_text_of_the_error_holds_the_payload(client: Client, constrained: Engine) -> None:
    """DETAIL quotes the failing row, and error texts end up in logs. The exception is SQLAlchemy's, with its SQLSTATE."""
    with pytest.raises(IntegrityError, match='violates check constraint "app_c"') as caught:
        client.run(add_a_job)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert sqlstate_of(caught.value) == "23514"


@pytest.mark.parametrize("kind", ["sync", "psycopg2", "psycopg", "asyncpg"])
def test_a_missing_table_says_what_to_run(kind: str, empty_database_url: str) -> None:
    """The server's error is kept, and its text, also after commit(), names the line and the command."""
    with pytest.raises(Exception, match="jobqueue_jobs") as caught:
        Client(kind, empty_database_url).run(add_a_job)
    advice, *_ = str(caught.value).split("\n")
    assert advice == (
        "(the table of the job queue is missing on the search_path, or older than this release: add a "
        "revision to your Alembic history with op.migrate_jobqueue(0, 2) (unless you have it already) and run: "
        "alembic upgrade head; where it is in another database of a session with several, bind the class to that: "
        "Session(binds={Job: engine, ...}))"
    )
    assert SECRET not in str(caught.value)


def test_a_missing_table_of_an_application_is_none_of_ours(application: Engine, session: Session) -> None:
    """A trigger of its own on the job table fails with the same SQLSTATE: no migration of ours would mend it."""
    with application.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO audit_log VALUES (new.id); RETURN new; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER audit AFTER INSERT ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION audit()"
        )
    add_a_job(session)
    with pytest.raises(Exception, match="audit_log") as caught:
        session.flush()
    assert "alembic" not in str(caught.value)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_who_goes_on_after_a_refused_job_is_stopped(
    client: Client, constrained: Engine, nested: bool, late: bool
) -> None:
    """As after any error of a flush: a commit would be a ROLLBACK that nobody hears of. A savepoint is all that it costs."""

    def work(session: Session) -> None:
        session.add(Document(title="before"))
        session.flush()
        if nested:
            session.begin_nested()
        document = Document(title="with it")
        session.add_all([document, enqueue("k", {"document_id": ref(document) if late else 1})])
        with pytest.raises(IntegrityError, match="app_c"):
            session.flush()
        for go_on in (session.commit, lambda: session.scalar(select(1))):
            with pytest.raises(PendingRollbackError, match="rolled back due to a previous exception"):
                go_on()
        session.rollback() if not nested else session.get_nested_transaction().rollback()  # type: ignore[union-attr]
        session.add(Document(title="after"))

    client.run(work)
    with Session(constrained) as session:
        titles = session.scalars(select(Document.title).order_by(Document.id)).all()
    assert titles == (["before", "after"] if nested else ["after"])
