"""Commits within the block: each is fenced, one lands, and what comes after it is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InternalError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import enqueue
from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.models import jobs
from tests.completion.shapes import root_committed_within_savepoint
from tests.entry.application import Base, Document
from tests.support.completions import Run, attempt, take_over, titles
from tests.support.databases import fail_on_others
from tests.support.jobs import read_job
from tests.support.reuse import Databases

ADDED = "INSERT INTO documents (title) VALUES ('more')"
MORE: dict[str, Callable[[Session], Any]] = {
    "orm": lambda session: session.add(Document(title="more")),
    "flushed": lambda session: (session.add(Document(title="more")), session.flush()),
    "core": lambda session: session.execute(text(ADDED)),
    "raw": lambda session: session.connection().exec_driver_sql(ADDED),
    "job": lambda session: session.add(enqueue("more")),
    "nested": lambda session: (session.begin_nested(), session.execute(text(ADDED))),
}


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("how", ["at the end", "committed", "past the session"])
def test_changes_after_the_commit_that_landed_are_refused(
    engine: Engine, handlers: Engine, run: Run, more: str, how: str
) -> None:
    """They would be outside of what is guaranteed: rolled back, and told; the job is done all the same."""

    def body(session: Session) -> None:
        session.add(Document(title="first"))
        session.commit()
        assert run.holder.told[-1] == "decided: landed"
        MORE[more](session)
        if how == "committed":
            session.commit()
        elif how == "past the session":
            session.flush()
            transaction = session.connection().get_transaction()
            assert transaction is not None
            transaction.commit()

    refused = pytest.raises(RuntimeError, match=f"job {run.job.id} .* was completed by an earlier commit")
    with refused, run.context.complete(sessionmaker(handlers)) as session:
        body(session)
    assert titles(engine) == ["first"]
    assert read_job(engine, run.job.id).status == "done"
    assert run.completion.fate is Fate.LANDED
    assert run.holder.told == ["begin", "fencing", "decided: landed"]


def test_reads_after_the_commit_that_landed_are_fine(engine: Engine, handlers: Engine, run: Run) -> None:
    """Committed or not."""
    with run.context.complete(sessionmaker(handlers)) as session:
        session.add(document := Document(title="first"))
        session.commit()
        assert document.title == "first"  # expired, so read again
        session.commit()
        assert list(session.scalars(select(Document.title))) == ["first"]
    assert run.completion.fate is Fate.LANDED


def test_a_handler_that_raises_after_its_commit_has_done_the_job(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """The error comes out; the owner knows already that the job is done."""

    def body(session: Session) -> None:
        session.add(Document(title="first"))
        session.commit()
        raise LookupError("afterwards")

    assert isinstance(attempt(run, sessionmaker(handlers), body), LookupError)
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["first"])
    assert run.holder.told == ["begin", "fencing", "decided: landed"]


def test_rollback_and_retry_within_the_block(engine: Engine, handlers: Engine, run: Run) -> None:
    """What was rolled back before its commit has fenced nothing; the next try is a completion like any other."""
    with run.context.complete(sessionmaker(handlers)) as session:
        session.add(Document(title="first try"))
        session.flush()
        session.rollback()
        session.add(Document(id=1, title="a"))
        session.flush()
        session.execute(text("SAVEPOINT mine"))
        with pytest.raises(IntegrityError):
            session.execute(text("INSERT INTO documents (id, title) VALUES (1, 'b')"))
        session.rollback()
        session.add(Document(title="second try"))
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["second try"])
    assert run.holder.told == ["begin", "fencing", "decided: landed"]


GIVING_UP: dict[str, Callable[[Session], None]] = {
    "rollback": lambda session: session.rollback(),
    "close": lambda session: session.close(),
    "invalidate": lambda session: session.invalidate(),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("giving_up", GIVING_UP)
def test_what_was_rolled_back_has_completed_nothing(
    engine: Engine, handlers: Engine, run: Run, giving_up: str, again: bool
) -> None:
    """The end of the block doesn't make the job done without its effects, unless it has done something since."""

    def body(session: Session) -> None:
        session.add(Document(title="first try"))
        session.flush()
        GIVING_UP[giving_up](session)
        if again:
            session.add(Document(title="second try"))

    error = attempt(run, sessionmaker(handlers), body)
    if again:
        assert (error, titles(engine)) == (None, ["second try"])
        assert read_job(engine, run.job.id).status == "done"
    else:
        assert isinstance(error, RuntimeError)
        assert "was rolled back, and nothing has been done since" in str(error)
        assert (run.completion.fate, run.completion.error) == (Fate.UNDONE, error)
        assert (titles(engine), read_job(engine, run.job.id).status) == ([], "running")


@pytest.fixture
def deferred(engine: Engine) -> None:
    """A constraint that speaks at the COMMIT, behind the fence."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE documents ADD CONSTRAINT one_title UNIQUE (title) DEFERRABLE INITIALLY DEFERRED"
        )


@pytest.mark.usefixtures("deferred")
def test_a_commit_that_the_server_refuses_is_undone(engine: Engine, handlers: Engine, run: Run) -> None:
    """Its fence goes with it, for certain: the server has said so."""
    with (
        pytest.raises(IntegrityError, match="one_title") as raised,
        run.context.complete(sessionmaker(handlers)) as session,
    ):
        session.add_all([Document(title="same"), Document(title="same")])
    assert (run.completion.fate, run.completion.error) == (Fate.UNDONE, raised.value)
    assert (titles(engine), read_job(engine, run.job.id).status) == ([], "running")


@pytest.mark.usefixtures("deferred")
def test_retry_after_a_commit_that_was_refused(engine: Engine, handlers: Engine, run: Run) -> None:
    """The second commit is fenced anew, and lands."""
    with run.context.complete(sessionmaker(handlers)) as session:
        session.add_all([Document(title="same"), Document(title="same")])
        with pytest.raises(IntegrityError, match="one_title"):
            session.commit()
        session.rollback()
        session.add(Document(title="other"))
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["other"])
    assert read_job(engine, run.job.id).status == "done"
    assert run.holder.told == ["begin", "fencing", "fencing", "decided: landed"]


@pytest.mark.usefixtures("deferred")
def test_a_refused_commit_that_the_handler_swallows_is_undone(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """Whoever has sent it and whatever he made of the error: the connection has seen the answer."""

    def body(session: Session) -> None:
        session.add_all([Document(title="same"), Document(title="same")])
        with pytest.raises(IntegrityError):
            session.commit()
        raise LookupError

    assert isinstance(attempt(run, sessionmaker(handlers), body), LookupError)
    assert run.completion.fate is Fate.UNDONE
    assert titles(engine) == []


@pytest.mark.usefixtures("deferred")
def test_a_refused_commit_of_a_session_of_the_handlers_is_undone(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """So that the same run may complete its job by another transaction."""
    with Session(handlers) as session:
        run.context.complete_in(session)
        session.add_all([Document(title="same"), Document(title="same")])
        with pytest.raises(IntegrityError, match="one_title"):
            session.commit()
    assert (run.completion.fate, titles(engine)) == (Fate.UNDONE, [])


def test_a_lost_fence_after_a_commit_without_a_proof_is_in_doubt(
    engine: Engine, handlers: Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen the answer of the earlier COMMIT: what took the row may be that."""

    def unanswered(_: Any) -> None:
        raise TimeoutError

    def body(session: Session) -> None:
        session.add(Document(title="unproved"))
        with monkeypatch.context() as patched:
            patched.setattr(handlers.dialect, "do_commit", unanswered)
            with pytest.raises(TimeoutError):
                session.commit()
        session.rollback()
        session.add(Document(title="again"))
        take_over(engine, run.job.id)

    error = attempt(run, sessionmaker(handlers), body)
    assert isinstance(error, LeaseLostError)
    assert "an earlier COMMIT of this block" in str(error)
    assert run.completion.fate is Fate.DOUBTFUL


def test_what_fails_in_the_flush_has_fenced_nothing(engine: Engine, handlers: Engine, run: Run) -> None:
    """The flush comes first, so that the row is held for no longer than the commit takes."""
    with (
        pytest.raises(IntegrityError),
        run.context.complete(sessionmaker(handlers)) as session,
    ):
        session.add(Document(title=None))
    assert run.holder.told == ["begin", "decided: undone"]


def test_with_several_engines_the_fence_goes_where_the_jobs_are(
    engine: Engine, run: Run, application_databases: Databases
) -> None:
    """Whichever is committed first, by whatever way: here by a root that left a savepoint open, with no use of theirs."""
    with application_databases.one(fail_on_others) as url:
        elsewhere = create_engine(url)
        sessions = sessionmaker(binds={Base: elsewhere, jobs: engine})
        assert attempt(run, sessions, root_committed_within_savepoint) is None
        assert titles(elsewhere) == ["outside", "inside"]
        elsewhere.dispose()
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, [])
    assert read_job(engine, run.job.id).status == "done"


def test_a_transaction_that_fails_behind_the_fence_is_not_taken_for_done(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """PostgreSQL answers a COMMIT of a failed transaction without an error: it is looked at before."""

    def careless(session: Session) -> None:
        with suppress(DBAPIError):
            session.execute(text("SELECT 1 / 0"))

    sessions = sessionmaker(handlers)
    event.listen(sessions, "before_commit", careless)
    with (
        pytest.raises(InternalError, match="current transaction is aborted"),
        run.context.complete(sessions) as session,
    ):
        session.add(Document(title="no"))
    assert run.holder.told == ["begin", "fencing", "decided: undone"]
    assert (titles(engine), read_job(engine, run.job.id).status) == ([], "running")


def test_a_fence_that_was_taken_back_with_a_savepoint_is_sent_again(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """A listener of the application's goes back to a savepoint that was set before the fence."""
    sessions = sessionmaker(handlers)

    def back(session: Session) -> None:
        session.connection().exec_driver_sql("ROLLBACK TO SAVEPOINT early")

    event.listen(sessions, "before_commit", back)
    with run.context.complete(sessions) as session:
        session.add(Document(title="kept"))
        session.flush()
        session.connection().exec_driver_sql("SAVEPOINT early")
        session.add(Document(title="taken back"))
        session.flush()
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["kept"])
    assert read_job(engine, run.job.id).status == "done"
    assert run.holder.told == ["begin", "fencing", "fencing", "decided: landed"]


def test_a_connection_in_autocommit_is_refused(engine: Engine, handlers: Engine, run: Run) -> None:
    """Before anything is written: there is nothing to roll back there."""
    autocommit = handlers.execution_options(isolation_level="AUTOCOMMIT")
    with (
        pytest.raises(RuntimeError, match="AUTOCOMMIT: there is no transaction"),
        run.context.complete(sessionmaker(autocommit)) as session,
    ):
        session.add(Document(title="no"))
    assert (run.completion.fate, titles(engine)) == (Fate.UNDONE, [])
    assert read_job(engine, run.job.id).status == "running"


def test_a_connection_that_breaks_before_the_commit_has_done_nothing(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """No COMMIT was sent, so that none can land."""

    def body(session: Session) -> None:
        session.add(Document(title="no"))
        session.flush()
        with engine.begin() as connection:
            pid = session.scalar(text("SELECT pg_backend_pid()"))
            connection.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})

    assert isinstance(attempt(run, sessionmaker(handlers), body), OperationalError)
    assert run.completion.fate is Fate.UNDONE
    assert (titles(engine), read_job(engine, run.job.id).status) == ([], "running")


def test_a_commit_without_an_answer_is_in_doubt(engine: Engine, handlers: Engine, run: Run) -> None:
    """The server ends the connection as the COMMIT comes: whether it has landed only the database can tell."""

    def end(connection: Any) -> None:
        pid = connection.connection.dbapi_connection.info.backend_pid
        with engine.begin() as killer:
            killer.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})

    event.listen(handlers, "commit", end)
    with (
        pytest.raises(OperationalError) as raised,
        run.context.complete(sessionmaker(handlers)) as session,
    ):
        session.add(Document(title="no"))
    assert (run.completion.fate, run.completion.error) == (Fate.DOUBTFUL, raised.value)
    assert run.completion.xid is not None
    assert run.holder.told == ["begin", "fencing", "decided: doubtful"]
