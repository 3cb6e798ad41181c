"""A completion in somebody's own transaction, and a retry of the same token sent after it: one of the two has landed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from sa_jobqueue.records import Landing, Settled, Settlement
from sa_jobqueue.statements.settle import complete
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_running, read_job

GONE = (Landing.GONE, None, False)
COMPLETED = (Landing.LANDED, JobStatus.DONE, True)


@contextmanager
def _completing(engine: Engine, job_id: int, token: UUID) -> Iterator[tuple[Connection, int]]:
    """A connection whose transaction has completed the job, and the transaction's id; it ends as the test says."""
    with engine.connect() as connection:
        written = connection.execute(complete(), {"ids": [job_id], "tokens": [token], "result_texts": []})
        assert written.rowcount == 1
        xid = connection.execute(text("SELECT pg_current_xact_id()::text")).scalar_one()
        yield connection, int(xid)


def _retry(store: Store, job_id: int, token: UUID, xid: int | None = None) -> tuple[object, object, bool]:
    retry = Settlement(job_id, token, Verb.RETRY, delay=MINUTE, error="in doubt", xid=xid)
    (settled,) = store.settle([retry], again=True)
    assert isinstance(settled, Settled)
    return settled.landing, settled.status, settled.completed


@pytest.mark.parametrize("commits", [True, False])
def test_as_long_as_its_transaction_is_open_it_is_not_decided(
    engine: Engine, store: Store, token: UUID, commits: bool
) -> None:
    """The retry finds the row locked and waits for nobody; afterwards it tells what has landed, or lands itself."""
    job_id = add_running(engine, token)
    with _completing(engine, job_id, token) as (connection, xid):
        assert _retry(store, job_id, token, xid) == (Landing.BUSY, None, False)
        (connection.commit if commits else connection.rollback)()
    answer = _retry(store, job_id, token, xid)
    row = read_job(engine, job_id)
    if commits:
        assert answer == COMPLETED
        assert (row.status, row.last_error) == ("done", None)
    else:
        assert answer == (Landing.LANDED, JobStatus.READY, False)
        assert (row.status, row.last_error) == ("ready", "in doubt")
    assert row.settled_token == token


def test_a_completion_that_comes_after_the_retry_finds_nothing(
    engine: Engine, store: Store, token: UUID
) -> None:
    """Whichever lands first: the other one is fenced off."""
    job_id = add_running(engine, token)
    assert _retry(store, job_id, token) == (Landing.LANDED, JobStatus.READY, False)
    with engine.connect() as connection:
        late = connection.execute(complete(), {"ids": [job_id], "tokens": [token], "result_texts": []})
        assert late.rowcount == 0
    assert read_job(engine, job_id).status == "ready"


def test_the_completion_of_another_run_is_not_ours(engine: Engine, store: Store, token: UUID) -> None:
    """The token tells: a later owner's done job says nothing about our completion."""
    job_id = add_running(engine, UUID(int=1))
    with _completing(engine, job_id, UUID(int=1)) as (connection, _):
        connection.commit()
    assert _retry(store, job_id, token) == (Landing.LOST, None, False)


@pytest.mark.parametrize(
    ("commits", "known", "expected"), [(True, True, COMPLETED), (False, True, GONE), (True, False, GONE)]
)
def test_when_the_row_is_gone_its_transaction_tells(
    engine: Engine, store: Store, token: UUID, commits: bool, known: bool, expected: object
) -> None:
    """Pruned since, or deleted instead; where the fence's answer was lost too, nobody knows."""
    job_id = add_running(engine, token)
    with _completing(engine, job_id, token) as (connection, xid):
        (connection.commit if commits else connection.rollback)()
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM jobqueue_jobs"))
    assert _retry(store, job_id, token, xid if known else None) == expected


def test_a_transaction_that_the_server_does_not_know(engine: Engine, store: Store, token: UUID) -> None:
    """As on a server that was promoted without it: the job is gone, and the connection lives on."""
    assert _retry(store, 1, token, 2**40) == GONE
    assert store.installed_version()


def test_a_transaction_that_still_runs_is_waited_for(engine: Engine, store: Store, token: UUID) -> None:
    """It has deleted its own job after the fence, say: nobody sees that before its end."""
    with engine.connect() as connection:
        xid = int(connection.execute(text("SELECT pg_current_xact_id()::text")).scalar_one())
        assert _retry(store, 1, token, xid) == (Landing.BUSY, None, False)
