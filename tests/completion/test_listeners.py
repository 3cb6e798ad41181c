"""What a completion hangs up is gone with it, or is there once however many completions there are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue.completion import nets
from sa_jobqueue.completion.guard import Guard
from tests.completion.conftest import Claim
from tests.entry.application import Document
from tests.support.completions import Run, titles
from tests.support.jobs import change

MANY = 200


def listeners(target: Any) -> int:
    """How many functions an object's events call."""
    return sum(
        len(list(getattr(target.dispatch, name)))
        for name in ("commit", "commit_twophase", "prepare_twophase", "before_cursor_execute")
    )


def guards() -> int:
    gc.collect()
    return sum(isinstance(each, Guard) for each in gc.get_objects())


def again(engine: Engine, run: Run) -> None:
    """The job runs once more under the same token, so that thousands of blocks need no thousands of claims."""
    change(
        engine,
        run.job.id,
        status="running",
        lease_token=run.job.token,
        lease_until=text("now() + interval '1 hour'"),
        leased_by="holder",
        finished_at=None,
    )
    run.holder.completion = None


@pytest.mark.parametrize("ends", ["landed", "undone"])
def test_nothing_piles_up(engine: Engine, handlers: Engine, run: Run, ends: str) -> None:
    """On the engine, on the class of sessions, on a pooled connection; and no completion is kept."""
    sessions = sessionmaker(handlers)
    before = guards()
    of_sessions = len(list(Session().dispatch.before_commit))
    for _ in range(MANY):
        block = run.context.complete(sessions)
        session = block.__enter__()
        session.execute(text("SELECT 1"))
        error = None if ends == "landed" else LookupError()
        block.__exit__(None if error is None else LookupError, error, None)
        again(engine, run)
    assert listeners(handlers) == 0
    assert len(list(handlers.dialect.dispatch.handle_error)) <= 1
    assert len(list(Session().dispatch.before_commit)) == of_sessions
    del block, session
    assert guards() <= before + 1


def test_a_connection_that_lives_on_has_its_listeners_once(
    engine: Engine, handlers: Engine, claim: Claim
) -> None:
    """And a commit of it is nobody's business any more when its last completion is over."""
    with handlers.connect() as outer:
        counts = set[int]()
        for number in range(5):
            run = claim()
            with outer.begin(), run.context.complete(sessionmaker(outer)) as session:
                session.add(Document(title=str(number)))
            counts.add(listeners(outer))
        assert len(counts) == 1
        with outer.begin():
            outer.execute(text("INSERT INTO documents (title) VALUES ('free')"))
    assert titles(engine) == ["0", "1", "2", "3", "4", "free"]


def test_a_session_that_lives_on_is_free(engine: Engine, handlers: Engine, claim: Claim) -> None:
    """Its `info` tells of no completion that is over."""
    with Session(handlers) as session:
        for number in range(3):
            run = claim()
            run.context.complete_in(session)
            session.add(Document(title=str(number)))
            session.commit()
            assert nets.guard_of(session) is None
            assert session.info == {}
    assert titles(engine) == ["0", "1", "2"]


def test_an_abandoned_session_is_collected(engine: Engine, handlers: Engine, run: Run) -> None:
    """Neither the completion nor its listeners keep a session or a connection alive that nobody has any more."""

    def abandon() -> tuple[weakref.ref[Session], weakref.ref[Connection]]:
        session = Session(handlers)
        run.context.complete_in(session)
        return weakref.ref(session), weakref.ref(session.connection())

    references: tuple[Callable[[], object], ...] = abandon()
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert titles(engine) == []
