"""Under REPEATABLE READ and SERIALIZABLE whatever changes the row after the snapshot takes the transaction with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue.admin import cancel
from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.store.trouble import sqlstate_of
from tests.entry.application import Document
from tests.support.completions import Run, attempt, take_over, titles
from tests.support.jobs import MINUTE, read_job

LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]
WAYS: dict[str, Callable[[Engine, str], Any]] = {
    "engine option": lambda engine, level: engine.execution_options(isolation_level=level),
    "create_engine": lambda engine, level: create_engine(engine.url, isolation_level=level),
    "server default": lambda engine, level: create_engine(
        engine.url,
        connect_args={"options": "-c default_transaction_isolation=" + level.replace(" ", "\\ ")},
    ),
}


def renew(engine: Engine, run: Run) -> None:
    run.holder.store.renew([run.completion.key], lease=2 * MINUTE)


def ask_to_cancel(engine: Engine, run: Run) -> None:
    with Session(engine) as session, session.begin():
        cancel(session, [run.job.id])


CHANGES: dict[str, Callable[[Engine, Run], Any]] = {
    "taken over": lambda engine, run: take_over(engine, run.job.id),
    "renewed": renew,
    "asked to cancel": ask_to_cancel,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_change_after_the_snapshot_is_a_serialization_failure(
    engine: Engine, handlers: Engine, run: Run, level: str, change: str
) -> None:
    """Which says nothing of the lease: the handler may run its transaction again, and that one's fence knows."""
    changes = iter([lambda: CHANGES[change](engine, run)])

    def body(session: Session) -> None:
        for title in ("first try", "second try"):
            session.add(Document(title=title))
            session.flush()
            for make_change in changes:
                make_change()
                with pytest.raises(OperationalError) as raised:
                    session.commit()
                assert sqlstate_of(raised.value) == "40001"
                session.rollback()

    error = attempt(run, sessionmaker(handlers.execution_options(isolation_level=level)), body)
    if change == "taken over":
        assert isinstance(error, LeaseLostError)
        assert (run.completion.fate, titles(engine)) == (Fate.LOST, [])
    else:
        assert (error, run.completion.fate, titles(engine)) == (None, Fate.LANDED, ["second try"])


@pytest.mark.parametrize("way", ["complete", "complete_in"])
def test_a_serialization_failure_of_the_handlers_own_data(
    engine: Engine, handlers: Engine, run: Run, way: str
) -> None:
    """The server often tells it to the fence, the last statement: the same run may try again, as for any other of them."""
    sessions = sessionmaker(handlers.execution_options(isolation_level="SERIALIZABLE"))
    complete = run.context.complete

    def skew(session: Session, title: str) -> None:
        """What the other reads as well."""
        session.scalars(select(Document.title)).all()
        session.add(Document(title=title))
        session.flush()

    def work(session: Session) -> None:
        skew(session, "mine")
        if not titles(engine):
            with sessions() as other, other.begin():
                skew(other, "theirs")

    def try_it() -> None:
        if way == "complete":
            with complete(sessions) as session:
                work(session)
        else:
            with sessions() as session, session.begin():
                run.context.complete_in(session)
                work(session)

    with pytest.raises(OperationalError) as raised:
        try_it()
    assert sqlstate_of(raised.value) == "40001"
    assert (run.completion.fate, titles(engine)) == (Fate.UNDONE, ["theirs"])
    run.holder.completion = None  # as a runner sees it, where one that is undone may be followed by another
    try_it()
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["theirs", "mine"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", LEVELS)
def test_renewals_are_held_from_the_first_statement_on(
    engine: Engine, handlers: Engine, run: Run, level: str, way: str
) -> None:
    """Before the snapshot, however the level was chosen; they go on when the block has ended in vain."""
    handlers = WAYS[way](handlers, level)

    def body(session: Session) -> None:
        assert run.holder.told == ["begin"]
        session.execute(text("SELECT 1"))
        assert session.scalar(text("SHOW transaction_isolation")) == level.lower()
        assert run.holder.told == ["begin", "hold_renewals"]
        session.rollback()
        session.execute(text("SELECT 1"))
        raise LookupError

    assert isinstance(attempt(run, sessionmaker(handlers), body), LookupError)
    handlers.dispose()
    assert run.holder.told == ["begin", "hold_renewals", "resume_renewals", "decided: undone"]


@pytest.mark.parametrize("level", LEVELS)
def test_an_undisturbed_block_lands(engine: Engine, handlers: Engine, run: Run, level: str) -> None:
    """And is renewed no more, for it is done."""
    with run.context.complete(sessionmaker(handlers.execution_options(isolation_level=level))) as session:
        session.add(Document(title="yes"))
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["yes"])
    assert run.holder.told == ["begin", "hold_renewals", "fencing", "decided: landed"]


def test_under_read_committed_renewals_go_on(engine: Engine, handlers: Engine, run: Run) -> None:
    """A block may take longer than a lease there."""
    with run.context.complete(sessionmaker(handlers)) as session:
        session.add(Document(title="yes"))
        session.flush()
        renew(engine, run)
        ask_to_cancel(engine, run)
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["yes"])
    assert "hold_renewals" not in run.holder.told
    assert read_job(engine, run.job.id).status == "done"
