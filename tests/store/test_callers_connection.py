"""A store over a connection of the caller's: the same verbs inside its transaction, which only the caller ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.records import ClaimedJob, Landing, Settlement
from sa_jobqueue.states import Verb
from sa_jobqueue.store.store import Store
from tests.support.jobs import add_job, insert_job, read_job, refuse

LEASE = timedelta(minutes=1)


@pytest.fixture
def mine(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back."""
    with engine.connect() as connection:
        yield connection
        connection.rollback()


def claim(store: Store, token: UUID) -> list[ClaimedJob]:
    return store.claim(token=token, quotas={"default": 9}, kinds=["test"], lease=LEASE)


def test_all_verbs_stay_in_the_callers_transaction(engine: Engine, mine: Connection, token: UUID) -> None:
    """Claim, renewal and settlement see each other, nobody else sees them, and the rollback takes them back."""
    seen: list[str] = []
    event.listen(mine, "commit", lambda _: seen.append("commit"))
    committed, own = add_job(engine), insert_job(mine)
    store = Store(mine, name="me")
    assert {job.id for job in claim(store, token)} == {committed, own}
    assert [one.landing for one in store.renew([(own, token)], lease=LEASE)] == [Landing.LANDED]
    settled = store.settle([Settlement(job_id, token, Verb.COMPLETE) for job_id in (committed, own)])
    assert [one.status for one in settled] == ["done", "done"]
    assert read_job(engine, committed).status == "ready"
    store.reset()
    store.close()
    assert mine.in_transaction()
    mine.rollback()
    assert seen == []
    assert read_job(engine, committed).attempts == 0


def test_a_refused_statement_costs_its_own_work_alone(engine: Engine, mine: Connection, token: UUID) -> None:
    """What the caller did before and what the store wrote before both stay."""
    bad, good = add_job(engine), add_job(engine)
    refuse(engine, bad, "RAISE EXCEPTION 'no'", when="new.status = 'done'")
    mine.execute(text("CREATE TABLE kept (id int)"))
    store = Store(mine, name="me")
    claim(store, token)
    answers = store.settle([Settlement(job_id, token, Verb.COMPLETE) for job_id in (bad, good)])
    assert [one.landing for one in answers] == [Landing.BUSY, Landing.LANDED]
    assert mine.execute(text("SELECT count(*) FROM kept")).scalar() == 0


def test_an_error_names_no_values_and_leaves_the_transaction_usable(engine: Engine, mine: Connection) -> None:
    """As on a connection of the store's own."""
    job_id = add_job(engine, payload={"secret": "S3CR3T"})
    refuse(engine, job_id, "RAISE EXCEPTION 'again' USING ERRCODE = '40001'")
    with pytest.raises(DBAPIError) as caught:
        claim(Store(mine, name="me"), uuid4())
    assert "S3CR3T" not in str(caught.value)
    assert mine.execute(text("SELECT 1")).scalar() == 1


def test_on_an_autocommit_connection_each_statement_is_durable(engine: Engine, token: UUID) -> None:
    """Which is the caller's choice: there is no transaction to hold a savepoint."""
    job_id = add_job(engine)
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    with engine.connect().execution_options(**options) as connection:
        assert len(claim(Store(connection, name="me"), token)) == 1
        assert read_job(engine, job_id).status == "running"
