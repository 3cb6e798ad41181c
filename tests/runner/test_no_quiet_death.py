"""Never alive and idle: after any trouble each loop of a runner works again, or the runner ends with a fault."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.store.own_connection import OwnConnection
from tests.support.waiting import wait_until
from tests.support.alive import CONNECTED, LOOPS, OTHERS, loops_of, quick_looks, threads_of_runners, whole

__all__ = ["quick_looks"]
pytestmark = pytest.mark.usefixtures("quick_looks")

Rows = Callable[..., Any]


def test_every_thread_of_a_runner_is_known_here(engine: Engine, database_url: str) -> None:
    """One that is new needs work that proves it alive, in `alive.Whole`, and its place in the tests below."""
    with whole(engine, database_url) as (_, runner):
        assert set(loops_of(runner)) == LOOPS
        assert threads_of_runners() == LOOPS | OTHERS


def _raised_by_the_server(sqlstate: str) -> Rows:
    statement = text(f"DO $$ BEGIN RAISE 'it has its reasons' USING ERRCODE = '{sqlstate}'; END $$")
    return lambda rows, own: rows(own, statement)


def _raised(error: BaseException) -> Rows:
    def fail(_rows: Any, _own: Any) -> None:
        raise error

    return fail


ERRORS: dict[str, Rows] = {
    **{
        name: _raised_by_the_server(sqlstate)
        for name, sqlstate in {
            "serialization failure": "40001",
            "deadlock": "40P01",
            "statement timeout": "57014",
            "lock timeout": "55P03",
            "bad data": "22P02",
            "a constraint": "23505",
            "no such table": "42P01",
            "no such right": "42501",
            "read only": "25006",
            "out of memory": "53200",
            "too many connections": "53300",
            "a statement prepared elsewhere": "26000",
            "another plan": "0A000",
            "a trigger": "P0001",
            "an internal error": "XX000",
            "a failing connection": "08006",
            "a server that shuts down": "57P01",
        }.items()
    },
    "killed by its own statement": lambda rows, own: rows(own, text("SELECT pg_terminate_backend(pg_backend_pid())")),
    "closed by the driver": lambda rows, own: (own.driver.close(), rows(own, text("SELECT 1"))),
    "bad data, says the driver": lambda rows, own: rows(own, text("SELECT CAST(:it AS text)"), {"it": "\0"}),
    "a bad type, says the driver": lambda rows, own: rows(own, text("SELECT :it"), {"it": object()}),
    "MemoryError": _raised(MemoryError()),
    "RecursionError": _raised(RecursionError()),
    "TypeError": _raised(TypeError("a bug")),
    "OSError": _raised(OSError("no descriptor left")),
}


@pytest.mark.parametrize("error", ERRORS)
def test_each_statement_of_each_loop_fails_once(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Whatever the server, the driver or Python says to it."""
    rows, failed, fail = OwnConnection.rows, set[tuple[str, str]](), ERRORS[error]
    began = threading.Event()

    def once(own: OwnConnection, statement: Any, parameters: Any = None) -> Any:
        loop = threading.current_thread().name.removeprefix("sa_jobqueue-")
        what = (loop, str(statement))
        if began.is_set() and loop in CONNECTED and what not in failed:
            failed.add(what)
            fail(rows, own)
        return rows(own, statement, parameters)

    monkeypatch.setattr(OwnConnection, "rows", once)
    monkeypatch.setattr("sa_jobqueue.loop.FIRST_BACKOFF", 0.01)
    with whole(engine, database_url) as (work, _):
        began.set()
        terminate(engine, "query LIKE 'LISTEN %'")  # or the listener would have nothing to say
        work.prove()
        wait_until(lambda: {loop for loop, _ in failed} == CONNECTED)


def terminate(engine: Engine, which: str) -> None:
    """End sessions of the runner."""
    statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %' AND "
    with engine.begin() as connection:
        assert True in connection.execute(text(statement + which)).scalars().all()
