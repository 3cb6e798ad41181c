"""Looking on: statements that an engine sends, transaction ends that it is asked for, rows that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event, select
from sqlalchemy.orm import Session

from sa_jobqueue import Job
from tests.support.waiting import wait_until


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """The statements that the engine sends, and COMMIT, ROLLBACK and their likes, in order."""
    seen: list[str] = []
    names = ("commit", "rollback", "savepoint", "rollback_savepoint", "release_savepoint")
    listeners = [(name, lambda *_, name=name: seen.append(name.upper())) for name in names]
    listeners.append(("before_cursor_execute", lambda _c, _u, statement, *_: seen.append(statement)))
    for name, listener in listeners:
        event.listen(engine, name, listener)
    try:
        yield seen
    finally:
        for name, listener in listeners:
            event.remove(engine, name, listener)


def rows(engine: Engine, *columns: str) -> list[Any]:
    """All jobs in order of their id, as a new session sees them: the named columns, or one value for a single one."""
    table = Job.__table__
    with engine.connect() as connection:
        found = connection.execute(select(*(table.c[name] for name in columns)).order_by(table.c.id)).all()
    return [row[0] if len(columns) == 1 else tuple(row) for row in found]


def backend(session: Session) -> int:
    """The process of the server that serves this session."""
    pid: int = session.connection().exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return pid


def wait_until_blocked(engine: Engine, pid: int) -> None:
    """Until that backend waits for somebody else's lock."""

    def blocked() -> bool:
        with engine.connect() as connection:
            return bool(
                connection.exec_driver_sql(f"SELECT cardinality(pg_blocking_pids({pid}))").scalar_one()
            )

    wait_until(blocked, what=f"backend {pid} waits for a lock")
