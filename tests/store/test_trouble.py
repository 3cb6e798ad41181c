"""Which errors leave it open whether a statement has landed: judged on real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.store.own_connection import OwnConnection
from sa_jobqueue.store.trouble import (
    because_of_a_row,
    fault_of,
    needs_new_session,
    nobody_could,
    nothing_landed,
    refused,
    useless_session,
)


@pytest.fixture(params=["autocommit", "explicit BEGIN"])
def connection(request: pytest.FixtureRequest, database_url: str) -> Iterator[OwnConnection]:
    """The connection of a loop, also where the default isolation makes it begin and commit."""
    options = (
        {} if request.param == "autocommit" else {"options": "-c default_transaction_isolation=serializable"}
    )
    engine = create_engine(database_url, poolclass=NullPool, connect_args=options)
    own = OwnConnection(engine)
    yield own
    own.reset()


def _error(act: Callable[[], object]) -> Exception:
    with pytest.raises(DBAPIError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize("statement", ["SELECT 1 / 0", "SELECT * FROM nowhere", "SELECT pg_sleep(5)"])
def test_what_the_server_refuses_has_not_landed(connection: OwnConnection, statement: str) -> None:
    """It is up, and its answer was an error; a statement that ran out of its time is one of these."""
    connection.rows(text("SELECT set_config('statement_timeout', '200ms', false)"))
    error = _error(lambda: connection.rows(text(statement)))
    assert refused(error)
    assert nothing_landed(error)
    assert [needs_new_session(error, failures) for failures in (1, 2, 3)] == [False, True, True]


def test_a_statement_of_another_session_is_no_rows_fault(connection: OwnConnection) -> None:
    """What was prepared in one session can't be run in the next, whatever rows it names: a batch is not taken apart."""
    error = _error(lambda: connection.rows(text("EXECUTE prepared_elsewhere")))
    assert refused(error)
    assert not because_of_a_row(error)
    assert useless_session(error)


def test_a_session_that_is_read_only_is_no_rows_fault(connection: OwnConnection) -> None:
    """It stays that way, whatever becomes of the database: another session may write."""
    connection.rows(text("SELECT set_config('default_transaction_read_only', 'on', false)"))
    error = _error(lambda: connection.rows(text("DELETE FROM jobqueue_jobs")))
    assert refused(error)
    assert not because_of_a_row(error)
    assert useless_session(error)


@pytest.mark.parametrize(
    ("sqlstate", "everybody"), [("53100", True), ("42501", False), ("23514", False), ("40001", False)]
)
def test_what_another_session_would_be_told_as_well(
    connection: OwnConnection, sqlstate: str, everybody: bool
) -> None:
    """No room, no right, a row that breaks a constraint: to connect anew would help nobody."""
    error = _error(
        lambda: connection.rows(text(f"DO $$ BEGIN RAISE 'no' USING ERRCODE = '{sqlstate}'; END $$"))
    )
    assert not useless_session(error)
    assert nobody_could(error) is everybody


def test_a_connection_that_breaks_leaves_it_open(connection: OwnConnection, engine: Engine) -> None:
    """Terminated in the middle or between two statements: the answer is missing, whatever the error says."""
    connection.rows(text("SELECT 1"))
    itself = text("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)")
    in_the_middle = _error(lambda: connection.rows(itself))
    connection.reset()
    ((pid,),) = connection.rows(text("SELECT pg_backend_pid()"))
    with engine.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    in_between = _error(lambda: connection.rows(text("SELECT 1")))
    for error in (in_the_middle, in_between):
        assert needs_new_session(error, 1)
        assert not refused(error)
        assert not nothing_landed(error)


def test_what_could_not_be_sent_has_not_landed(database_url: str) -> None:
    """No server, or one that lets nobody in: a try again needs no reconciliation."""
    nobody = make_url(database_url).update_query_dict({"host": "/nowhere"})
    no_such = make_url(database_url).set(database="nowhere")
    for url in (nobody, no_such):
        error = _error(
            lambda url=url: OwnConnection(create_engine(url, poolclass=NullPool)).rows(text("SELECT 1"))
        )
        assert not refused(error)
        assert nothing_landed(error)


def test_errors_of_our_own_code_leave_it_open() -> None:
    """Raised after the answer had come, perhaps: the claim of a job that we then stumble over has landed."""
    assert not refused(RuntimeError())
    assert not nothing_landed(LookupError())


@pytest.mark.parametrize("attribute", ["sqlstate", "pgcode"])
def test_the_server_is_understood_through_every_driver(attribute: str) -> None:
    """psycopg2, which a caller's session may have, calls the code by a name of its own."""
    cause = Exception("update or delete on table violates foreign key constraint")
    setattr(cause, attribute, "23503")
    error = DBAPIError("DELETE", {}, cause)
    assert refused(error)
    assert because_of_a_row(error)
    assert fault_of(error) == "Exception, SQLSTATE 23503"
