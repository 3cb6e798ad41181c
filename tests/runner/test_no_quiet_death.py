"""Never alive and idle: after any trouble each loop of a runner works again, or the runner ends with a fault."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text

from sa_jobqueue.events import LoopFailed
from sa_jobqueue.loop import Loop
from sa_jobqueue.runner import dispatch_messages, settle, timeouts
from sa_jobqueue.runner.crew import Crew
from sa_jobqueue.store.own_connection import OwnConnection
from sa_jobqueue.testing import PostgresServer
from tests.support.alive import (
    CONNECTED,
    LOOPS,
    OTHERS,
    SOON,
    loops_of,
    quick_looks,
    threads_of_runners,
    whole,
)
from tests.support.databases import new_name
from tests.support.runners import add, process
from tests.support.waiting import wait_until

__all__ = ["quick_looks"]
pytestmark = pytest.mark.usefixtures("quick_looks")

Rows = Callable[..., Any]


def test_every_thread_of_a_runner_is_known_here(
    engine: Engine, database_url: str, role: str, server: PostgresServer
) -> None:
    """One that is new needs work that proves it alive, in `alive.Whole`, and its place in the tests below.

    With the rights of a runner and no trouble the server has nothing to complain of.
    """
    logged = server.log_path.stat().st_size if server.log_path else 0
    with whole(engine, make_url(database_url).set(username=role)) as (work, runner):
        work.prove()
        assert set(loops_of(runner)) == LOOPS
        assert threads_of_runners() == LOOPS | OTHERS
    assert work.recorder.of(LoopFailed) == []
    if server.log_path:
        assert not re.findall(r".*(?:ERROR|FATAL|WARNING).*", server.log_path.read_text()[logged:])


def _raised_by_the_server(sqlstate: str) -> Rows:
    statement = text(f"DO $$ BEGIN RAISE 'it has its reasons' USING ERRCODE = '{sqlstate}'; END $$")
    return lambda rows, own: rows(own, statement)


def _raised(error: BaseException) -> Rows:
    def fail(_rows: Any, _own: Any) -> None:
        raise error

    return fail


ERRORS: dict[str, list[Rows]] = {
    "what passes by itself": [
        _raised_by_the_server("40001"),  # a serialization failure
        _raised_by_the_server("40P01"),  # a deadlock
        _raised_by_the_server("57014"),  # statement_timeout
    ],
    "what is somebody's fault": [
        _raised_by_the_server("22P02"),  # a value
        _raised_by_the_server("23505"),  # a constraint
        _raised_by_the_server("42P01"),  # no table
        _raised_by_the_server("42501"),  # no right
    ],
    "what holds for everybody": [
        _raised_by_the_server("25006"),  # read only
        _raised_by_the_server("53300"),  # too many connections
        _raised_by_the_server("26000"),  # a statement that was prepared elsewhere
    ],
    "a connection that breaks": [
        _raised_by_the_server("08006"),
        lambda rows, own: rows(own, text("SELECT pg_terminate_backend(pg_backend_pid())")),
        lambda rows, own: (own.driver.close(), rows(own, text("SELECT 1"))),
    ],
    "what the driver and Python say": [
        lambda rows, own: rows(own, text("SELECT CAST(:it AS text)"), {"it": "\0"}),
        lambda rows, own: rows(own, text("SELECT :it"), {"it": object()}),
        _raised(RecursionError()),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("errors", ERRORS)
def test_each_statement_of_each_loop_fails(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    """With each of these errors in turn, whatever it is about: then it is sent again, and nothing is lost or done twice."""
    rows, failed = OwnConnection.rows, Counter[tuple[str, str]]()
    began = threading.Event()

    def failing(own: OwnConnection, statement: Any, parameters: Any = None) -> Any:
        loop = threading.current_thread().name.removeprefix("sa_jobqueue-")
        what = (loop, str(statement))
        if began.is_set() and loop in CONNECTED and failed[what] < len(ERRORS[errors]):
            failed[what] += 1
            ERRORS[errors][failed[what] - 1](rows, own)
        return rows(own, statement, parameters)

    monkeypatch.setattr(OwnConnection, "rows", failing)
    monkeypatch.setattr("sa_jobqueue.loop.LONGEST_BACKOFF", 0.02)
    monkeypatch.setattr("sa_jobqueue.runner.idling.REFUSED_PAUSE", 0.1)
    with whole(engine, database_url) as (work, _):
        listens = "query LIKE 'LISTEN \"jobqueue%'"  # to jobs, after its probe
        wait_until(lambda: sessions(engine, listens) == 1, what="the listener")
        began.set()
        terminate(engine, listens)  # or it would have nothing to say
        work.prove(within=2 * SOON)
        all_of_them = len(ERRORS[errors])
        wait_until(lambda: {loop for (loop, _), times in failed.items() if times == all_of_them} == CONNECTED)


def test_every_session_is_ended_in_a_statement(engine: Engine, database_url: str) -> None:
    """Their answers are lost, and what they were about is known or found out."""
    waiting = "wait_event_type = 'Lock'"
    with whole(engine, database_url) as (work, _), engine.connect() as application:
        application.execute(text("LOCK TABLE jobqueue_jobs"))
        work.gate.set()  # an outcome to write, and a free slot
        wait_until(lambda: sessions(engine, waiting) == len(CONNECTED - {"listen"}), what="all of them")
        terminate(engine, waiting)
        wait_until(lambda: sessions(engine, waiting) == len(CONNECTED - {"listen"}), what="all once more")
        assert {event.loop for event in work.recorder.of(LoopFailed)} == CONNECTED - {"listen"}
        terminate(engine, "true")


def sessions(engine: Engine, which: str) -> int:
    """How many sessions of the runner are such."""
    statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %' AND "
    with engine.connect() as connection:
        return int(connection.execute(text(statement + which)).scalar_one())


#: What an operator does, and how it is undone.
TROUBLES = {
    "another name for the table": (
        "ALTER TABLE jobqueue_jobs RENAME TO elsewhere",
        "ALTER TABLE elsewhere RENAME TO jobqueue_jobs",
    ),
    "no right": (
        "REVOKE ALL ON jobqueue_jobs, jobqueue_idle FROM {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON jobqueue_jobs, jobqueue_idle TO {role}",
    ),
    "sessions that may only read": (
        "ALTER ROLE {role} SET default_transaction_read_only = on",
        "ALTER ROLE {role} RESET default_transaction_read_only",
    ),
    "sessions that find no table": (
        "ALTER ROLE {role} SET search_path = nowhere",
        "ALTER ROLE {role} RESET search_path",
    ),
    "sessions without time": (
        "ALTER ROLE {role} SET statement_timeout = 1",
        "ALTER ROLE {role} RESET statement_timeout",
    ),
    "too many connections": ("ALTER ROLE {role} CONNECTION LIMIT 0", "ALTER ROLE {role} CONNECTION LIMIT -1"),
    "no login": ("ALTER ROLE {role} NOLOGIN", "ALTER ROLE {role} LOGIN"),
}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_an_operator_does_and_undoes(
    engine: Engine, database_url: str, role: str, trouble: str
) -> None:
    """Sessions that began meanwhile have learnt of it, and must not be kept when it is over."""
    do, undo = (text(statement.format(role=role)) for statement in TROUBLES[trouble])
    url = make_url(database_url).set(username=role)
    with whole(engine, url, poll_interval=timedelta(seconds=1)) as (work, _):
        heard = len(work.recorder.events)
        with engine.begin() as connection:
            connection.execute(do)
        terminate(engine, "true")

        def fail() -> set[str]:
            return {event.loop for event in work.recorder.events[heard:] if isinstance(event, LoopFailed)}

        wait_until(lambda: fail() >= {"leases", "maintenance"}, what="the trouble")
        threading.Event().wait(0.5)  # it lasts for a while
        with engine.begin() as connection:
            connection.execute(undo)


@pytest.fixture
def role(engine: Engine) -> Iterator[str]:
    """A role with the rights of a runner and no others."""
    name = new_name()
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        connection.execute(
            text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON jobqueue_jobs, jobqueue_idle TO {name}")
        )
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))


#: What the hands of a loop do without the database: there a failure is a fault, as in a step.
FAULTS = {
    *(dispatch_messages.Count, dispatch_messages.GiveBack, dispatch_messages.Drained),
    *(settle.Tell, settle.Conclude, settle.Postpone),
    *(timeouts.TimeOut, timeouts.GiveUp),
}
#: The times that an action fails: the first of them goes well, so that each loop has begun.
BEFORE, AFTER = 2, 4


@pytest.mark.slow
def test_the_hands_of_each_loop_fail(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an action is done, and when it is done and has no answer: each is done again, or made up for."""
    done, start = Counter[tuple[str, str, str]](), Crew.start

    def failing(loop: Loop[Any]) -> Callable[[Any], Any]:
        perform = loop._perform

        def fail(action: Any) -> Any:
            what = (loop.name, type(action).__name__, getattr(action, "name", ""))
            if type(action) in FAULTS:
                return perform(action)
            done[what] += 1
            if done[what] == BEFORE:
                raise ValueError("before it is done")
            answer = perform(action)
            if done[what] == AFTER:
                raise ValueError("after it is done")
            return answer

        return fail

    def start_failing(crew: Crew) -> None:
        for loop in vars(crew).values():
            if isinstance(loop, Loop):
                monkeypatch.setattr(loop, "_perform", failing(loop))
        start(crew)

    monkeypatch.setattr(Crew, "start", start_failing)
    monkeypatch.setattr("sa_jobqueue.runner.listening.CHECK_INTERVAL", 0.2)
    with whole(engine, database_url, once=False) as (work, _):
        for _ in range(2):
            work.prove()
    assert {loop for (loop, *_), times in done.items() if times >= AFTER} == CONNECTED


#: What is to break in a process, and by which error: a step, the hands of a loop (where an Exception is tried again), or
#: another thread.
BREAKS = [
    ("dispatch", "_step", "ValueError"),
    ("settle", "_perform", "BareError"),
    ("leases", "_step", "MemoryError"),
    ("maintenance", "_perform", "SystemExit"),
    ("timeouts", "_step", "RecursionError"),
    ("listen", "_step", "BareError"),
    ("asyncio", "", "MemoryError"),
    ("loop-watch", "", "ValueError"),
]


@pytest.mark.once
@pytest.mark.slow
def test_a_process_that_loses_a_loop_ends(engine: Engine, database_url: str) -> None:
    """With code 1, and its last words name the loop; its jobs are left to others."""
    assert {where for where, *_ in BREAKS} == LOOPS | {"asyncio", "loop-watch"}
    with ExitStack() as stack:
        runners = {}
        for number, (where, part, error) in enumerate(BREAKS):
            env = {
                "SA_JOBQUEUE_TEST_FAULT": f"{where}:{part}:{error}",
                "SA_JOBQUEUE_TEST_QUEUE": f"queue-{number}",
            }
            options = ("--grace", "100ms", "--log-format", "json")
            runners[where, part, error] = stack.enter_context(
                process("tests.apps.faults:jobs", database_url, *options, env=env)
            )

        def ended() -> bool:
            with engine.begin() as connection:
                for number, runner in enumerate(runners.values()):
                    if not runner.ended:
                        for kind in ("work", "end"):
                            add(connection, kind, queue=f"queue-{number}")
            threading.Event().wait(0.3)
            return all(runner.ended for runner in runners.values())

        wait_until(ended, what="the end of all of them")
        for (where, _, error), runner in runners.items():
            assert runner.wait() == 1, runner.text
            records = [json.loads(line) for line in runner.text.splitlines()]
            (last,) = [record for record in records if record["level"] == "critical"]
            assert last["loop"] == ("asyncio" if where == "loop-watch" else where)
            assert error in last["message"]


def terminate(engine: Engine, which: str) -> None:
    """End sessions of the runner."""
    statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %' AND "
    with engine.begin() as connection:
        assert True in connection.execute(text(statement + which)).scalars().all()
