"""The ways in which a handler may commit in its block, and what happens between any two statements of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from sa_jobqueue import enqueue
from tests.entry.application import Document

Body = Callable[[Session], None]


def plain(session: Session) -> None:
    session.add(Document(title="plain"))
    session.flush()
    session.execute(text("SELECT 1"))
    session.add(enqueue("follow-up"))


def core(session: Session) -> None:
    session.execute(text("INSERT INTO documents (title) VALUES ('core')"))


def explicit_commit(session: Session) -> None:
    plain(session)
    session.commit()
    session.execute(text("SELECT 1"))


def released_savepoint(session: Session) -> None:
    with session.begin_nested():
        session.add(Document(title="nested"))
    session.add(enqueue("follow-up"))


def rolled_back_savepoint(session: Session) -> None:
    session.add(Document(title="kept"))
    savepoint = session.begin_nested()
    session.add(Document(title="taken back"))
    session.flush()
    savepoint.rollback()


def savepoint_left_open(session: Session) -> None:
    session.begin_nested()
    session.add(Document(title="nested"))


def root_committed_within_savepoint(session: Session) -> None:
    root = session.begin() if not session.in_transaction() else session.get_transaction()
    assert root is not None
    session.add(Document(title="outside"))
    session.begin_nested()
    session.add(Document(title="inside"))
    root.commit()


def connection_commit(session: Session) -> None:
    session.add(Document(title="past the session"))
    session.flush()
    transaction = session.connection().get_transaction()
    assert transaction is not None
    transaction.commit()


def savepoint_of_the_connection(session: Session) -> None:
    connection = session.connection()
    connection.begin_nested()
    session.add(Document(title="nested"))


BODIES: dict[str, Body] = {
    body.__name__: body
    for body in (
        plain,
        core,
        explicit_commit,
        released_savepoint,
        rolled_back_savepoint,
        savepoint_left_open,
        root_committed_within_savepoint,
        connection_commit,
        savepoint_of_the_connection,
    )
}
WRITTEN: dict[str, list[str]] = {
    "plain": ["plain"],
    "core": ["core"],
    "explicit_commit": ["plain"],
    "released_savepoint": ["nested"],
    "rolled_back_savepoint": ["kept"],
    "savepoint_left_open": ["nested"],
    "root_committed_within_savepoint": ["outside", "inside"],
    "connection_commit": ["past the session"],
    "savepoint_of_the_connection": ["nested"],
}


@contextmanager
def before_each_step(engine: Engine, act: Callable[[int, str], Any]) -> Iterator[None]:
    """Call `act` before each statement and each COMMIT that this engine sends, with its number from 0 and its text."""
    steps: list[str] = []

    def step(what: str) -> None:
        steps.append(what)
        act(len(steps) - 1, what)

    def statement(_connection: Any, _cursor: Any, what: str, *_: Any) -> None:
        step(what)

    def commit(_connection: Any) -> None:
        step("COMMIT")

    def prepare(_connection: Any, _xid: Any) -> None:
        step("PREPARE")

    listeners = {"before_cursor_execute": statement, "commit": commit, "prepare_twophase": prepare}
    for name, listener in listeners.items():
        event.listen(engine, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners.items():
            event.remove(engine, name, listener)
