"""Sessions joined to an outer connection, and completions that join a session: whose COMMIT counts?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue import enqueue
from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError
from tests.completion.conftest import Claim
from tests.entry.application import Document
from tests.support.completions import Run, attempt, is_untouched, take_over, titles
from tests.support.jobs import read_job

MODES: list[Any] = ["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]
#: Where the session's commit is the connection's.
FULLY = "control_fully"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_outer_transaction_decides(
    engine: Engine, handlers: Engine, run: Run, mode: Any, nested: bool, end: str
) -> None:
    """Until it has ended the completion is in doubt; then rows and job are there together, or neither."""
    with handlers.connect() as outer:
        transaction = outer.begin()
        if nested:
            outer.begin_nested()
        sessions = sessionmaker(outer, join_transaction_mode=mode)
        with run.context.complete(sessions) as session:
            session.add(Document(title="joined"))
        ended = not transaction.is_active
        assert ended == (mode == FULLY and not nested)
        assert run.completion.fate is (Fate.LANDED if ended else Fate.DOUBTFUL)
        assert run.completion.xid is not None
        if not ended:
            assert titles(engine) == []
            getattr(transaction, end)()
    landed = ended or end == "commit"
    assert titles(engine) == (["joined"] if landed else [])
    row = read_job(engine, run.job.id)
    assert (row.status, row.settled_token) == (("done", run.job.token) if landed else ("running", None))


@pytest.mark.parametrize(
    ("mode", "end"),
    [(mode, end) for mode in MODES for end in ("commit", "rollback")]
    # The others end the outer savepoint themselves.
    + [(mode, "savepoint") for mode in ("conditional_savepoint", "create_savepoint")],
)
def test_a_commit_by_hand_within_an_outer_transaction(
    engine: Engine, handlers: Engine, run: Run, mode: Any, end: str
) -> None:
    """The fence that stands there already is not sent again, unless somebody has gone back to before it."""
    with handlers.connect() as outer:
        transaction = outer.begin()
        savepoint = outer.begin_nested() if end == "savepoint" else None
        with run.context.complete(sessionmaker(outer, join_transaction_mode=mode)) as session:
            session.add(Document(title="first"))
            session.commit()
            session.scalars(text("SELECT 1")).all()
            if savepoint is not None:
                session.close()
                savepoint.rollback()
                session.add(Document(title="second"))
        assert run.completion.fate is (Fate.LANDED if mode == FULLY else Fate.DOUBTFUL)
        if transaction.is_active:
            (transaction.rollback if end == "rollback" else transaction.commit)()
    landed = end != "rollback" or mode == FULLY
    assert titles(engine) == ([("first" if savepoint is None else "second")] if landed else [])
    assert read_job(engine, run.job.id).status == ("done" if landed else "running")


@pytest.mark.parametrize("mode", MODES)
def test_a_job_lost_within_an_outer_transaction(
    engine: Engine, handlers: Engine, run: Run, mode: Any
) -> None:
    """The session's part is taken back, as that mode takes it back; what the outer one commits has none of it."""
    token: list[UUID | None] = []

    def body(session: Session) -> None:
        session.add(Document(title="no"))
        session.flush()
        token.append(take_over(engine, run.job.id))

    with handlers.connect() as outer:
        outer.begin()
        error = attempt(run, sessionmaker(outer, join_transaction_mode=mode), body)
        assert isinstance(error, LeaseLostError)
        assert run.completion.fate is Fate.LOST
        outer.commit()
    assert is_untouched(engine, run.job.id, token[0])


def test_an_outer_commit_within_the_block_is_fenced(engine: Engine, handlers: Engine, run: Run) -> None:
    """It comes past the session: the job is completed by it, and the rest of the block may read."""
    with handlers.connect() as outer:
        outer.begin()
        with run.context.complete(sessionmaker(outer)) as session:
            session.add(Document(title="joined"))
            session.flush()
            outer.commit()
        assert (titles(engine), read_job(engine, run.job.id).status) == (["joined"], "done")
        assert run.completion.fate is Fate.LANDED


def test_an_outer_commit_of_a_lost_job_is_refused(engine: Engine, handlers: Engine, run: Run) -> None:
    """Also twice, and by whoever has the connection."""
    token: list[UUID | None] = []

    def body(session: Session) -> None:
        session.add(Document(title="no"))
        session.flush()
        token.append(take_over(engine, run.job.id))
        with pytest.raises(LeaseLostError):
            outer.commit()
        outer.rollback()
        outer.execute(text("INSERT INTO documents (title) VALUES ('no')"))
        with pytest.raises(LeaseLostError):
            outer.commit()

    with handlers.connect() as outer:
        outer.begin()
        assert isinstance(attempt(run, sessionmaker(outer), body), LeaseLostError)
        assert run.completion.fate is Fate.LOST
        assert is_untouched(engine, run.job.id, token[0])
        outer.rollback()
        outer.execute(text("INSERT INTO documents (title) VALUES ('afterwards')"))
        outer.commit()
    assert titles(engine) == ["afterwards"]  # what was refused lies in no open transaction


SESSIONS: dict[str, Callable[[Engine], Any]] = {
    "Session": Session,
    "scoped_session": lambda engine: scoped_session(sessionmaker(engine)),
}


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("when", ["first", "last"])
def test_a_session_of_the_handlers_completes_the_job(
    engine: Engine, handlers: Engine, run: Run, kind: str, when: str
) -> None:
    """`complete_in` at any place of the transaction, whose commit ends it."""
    session = SESSIONS[kind](handlers)
    if when == "first":
        run.context.complete_in(session, result=[1])
    session.add_all([Document(title="mine"), enqueue("follow-up")])
    session.flush()
    if when == "last":
        run.context.complete_in(session, result=[1])
    assert run.completion.fate is Fate.OPEN
    session.commit()
    row = read_job(engine, run.job.id)
    assert (row.status, row.result, titles(engine)) == ("done", [1], ["mine"])
    assert run.holder.told == ["begin", "fencing", "decided: landed"]
    session.add(Document(title="afterwards"))  # the session is the handler's again
    session.commit()
    session.close()
    assert titles(engine) == ["mine", "afterwards"]


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_it_ends_with_its_transaction(engine: Engine, handlers: Engine, run: Run, end: str) -> None:
    """What the session does afterwards completes nothing."""
    session = Session(handlers)
    run.context.complete_in(session)
    session.add(Document(title="no"))
    session.flush()
    getattr(session, end)()
    assert run.completion.fate is Fate.UNDONE
    assert "was rolled back" in str(run.completion.error)
    session.add(Document(title="afterwards"))
    session.commit()
    session.close()
    assert titles(engine) == ["afterwards"]
    assert read_job(engine, run.job.id).status == "running"
    assert run.holder.told == ["begin", "decided: undone"]


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_within_a_savepoint_it_shares_its_end(engine: Engine, handlers: Engine, run: Run, end: str) -> None:
    """Released, it goes on with what is around it; rolled back, it is gone."""
    with Session(handlers) as session:
        session.add(Document(title="around"))
        outermost = session.begin_nested()
        savepoint = session.begin_nested()
        run.context.complete_in(session)
        session.add(Document(title="inside"))
        session.flush()
        getattr(savepoint, end)()
        assert run.completion.fate is (Fate.OPEN if end == "commit" else Fate.UNDONE)
        outermost.commit()
        session.commit()
    landed = end == "commit"
    assert run.completion.fate is (Fate.LANDED if landed else Fate.UNDONE)
    assert titles(engine) == (["around", "inside"] if landed else ["around"])
    assert read_job(engine, run.job.id).status == ("done" if landed else "running")


def test_a_lost_job_fails_the_handlers_own_commit(engine: Engine, handlers: Engine, run: Run) -> None:
    """Swallowed and tried again, it fails again; after its rollback the session is free."""
    with Session(handlers) as session:
        run.context.complete_in(session)
        token = take_over(engine, run.job.id)
        session.add(Document(title="no"))
        for _ in range(2):
            with pytest.raises(LeaseLostError):
                session.commit()
        assert run.completion.fate is Fate.DOUBTFUL
        session.rollback()
        assert run.completion.fate is Fate.LOST
        session.commit()
    assert is_untouched(engine, run.job.id, token)


def test_a_session_that_nobody_ends_gives_its_connection_back(
    engine: Engine, handlers: Engine, run: Run
) -> None:
    """The completion keeps neither the session nor its connection alive."""
    session = Session(handlers)
    run.context.complete_in(session)
    session.add(Document(title="no"))
    session.flush()
    assert handlers.pool.checkedout() == 1  # type: ignore[attr-defined]
    session.close()
    assert handlers.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert run.completion.fate is Fate.UNDONE


def test_two_jobs_one_after_the_other_in_one_session(engine: Engine, handlers: Engine, claim: Claim) -> None:
    """Each with the transaction that it joined."""
    with Session(handlers) as session:
        for title in ("a", "b"):
            run = claim()
            run.context.complete_in(session)
            session.add(Document(title=title))
            session.commit()
            assert run.completion.fate is Fate.LANDED
            assert read_job(engine, run.job.id).status == "done"
    assert titles(engine) == ["a", "b"]
