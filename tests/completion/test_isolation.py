"""Under REPEATABLE READ and SERIALIZABLE whatever changes the row after the snapshot takes the completion with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue.admin import cancel
from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError
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
def test_a_change_after_the_snapshot_is_lost(
    engine: Engine, handlers: Engine, run: Run, level: str, change: str
) -> None:
    """Nothing of the block is written, also not by a handler that swallows the error."""
    errors: list[BaseException] = []

    def body(session: Session) -> None:
        session.add(Document(title="no"))
        session.flush()
        CHANGES[change](engine, run)
        try:
            session.commit()
        except LeaseLostError as error:
            errors.append(error)

    error = attempt(run, sessionmaker(handlers.execution_options(isolation_level=level)), body)
    assert isinstance(error, LeaseLostError)
    assert "changed since this transaction's snapshot" in str(error)
    assert errors == [error]
    assert (run.completion.fate, run.completion.error) == (Fate.LOST, error)
    assert titles(engine) == []
    assert read_job(engine, run.job.id).status == "running"


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
