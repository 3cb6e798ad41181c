"""The runner's own connections: poolers, encodings, and what a URL may say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.failures import describe_error
from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.states import Verb
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.pieces import PROBES
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support.databases import fail_on_connections, new_name
from tests.support.jobs import MINUTE, add_job, read_job
from tests.support.pooler import Pooler

USES = 12
"""More than it takes until the driver prepares a statement."""


@pytest.fixture
def pooler(database_url: str) -> Iterator[Pooler]:
    """A transaction pooler in front of the database."""
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="sajq-", dir="/tmp") as folder:
        pooler = Pooler(database_url, Path(folder))
        yield pooler
        pooler.close()


def work(url: URL, *, uses: int = USES) -> Any:
    """Claim and complete one job so many times on one connection; the prepared statements of its last session."""
    engine = runner_engine(url, "runner-1", deadline=MINUTE)
    store = Store(engine, name="runner-1")
    try:
        for _ in range(uses):
            (job,) = store.claim(token=uuid4(), quotas={"default": 1}, kinds=["test"], lease=MINUTE)
            store.renew([(job.id, job.token)], lease=MINUTE)
            (settled,) = store.settle([Settlement(job.id, job.token, Verb.COMPLETE, result="1")])
            assert settled.landing is Landing.LANDED
        return store._connection.rows(text("SELECT count(*) FROM pg_prepared_statements"))[0][0]
    finally:
        store.close()
        engine.dispose()


def test_a_transaction_pooler_breaks_nothing(engine: Engine, pooler: Pooler) -> None:
    """Where each statement may meet another session nothing is prepared: no name is unknown there, or another's."""
    jobs = [add_job(engine) for _ in range(USES)]
    assert work(pooler.url) == 0
    assert {read_job(engine, job_id).status for job_id in jobs} == {"done"}


def test_the_pooler_of_these_tests_is_one(engine: Engine, pooler: Pooler) -> None:
    """Prepared statements do fail behind it, when the URL insists on them."""
    for _ in range(USES):
        add_job(engine)
    with pytest.raises(DBAPIError, match="prepared statement"):
        work(pooler.url.update_query_dict({"prepare_threshold": "2"}))


def test_a_direct_connection_prepares(engine: Engine) -> None:
    """Without a pooler statements are parsed and planned once, unless the URL says otherwise."""
    for _ in range(2 * USES):
        add_job(engine)
    assert work(engine.url) >= 3
    assert work(engine.url.update_query_dict({"prepare_threshold": "none"})) == 0


@pytest.mark.parametrize("given", ["many", "", "-1"])
def test_a_threshold_that_is_no_number_is_refused(given: str) -> None:
    """The error names what stands in the URL and what may stand there."""
    url = make_url("postgresql+psycopg:///shop").update_query_dict({"prepare_threshold": given})
    with pytest.raises(ConfigurationError, match=f"prepare_threshold={given}: write a number .* or none"):
        runner_engine(url, "runner-1", deadline=MINUTE)


def test_an_error_quotes_no_payload(engine: Engine) -> None:
    """What a loop fails with ends up in logs: the constraint is named there, the row and the parameters are not."""
    for _ in range(PROBES):  # so many that no single row is to blame
        add_job(engine, payload={"token": "S3CR3T"})
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE jobqueue_jobs ADD CONSTRAINT theirs CHECK (status <> 'running')"
        )
    with pytest.raises(DBAPIError, match='violates check constraint "theirs"') as caught:
        work(engine.url)
    described = describe_error(caught.value)
    assert "theirs" in described
    assert "S3CR3T" not in described
    assert "runner-1" not in described


@pytest.fixture
def latin_engine(server: PostgresServer) -> Iterator[Engine]:
    """A database that can't hold every character."""
    name = new_name()
    with connect(server.url("postgres")) as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
    engine = create_engine(server.url(name), poolclass=NullPool, connect_args={"client_encoding": "utf8"})
    with engine.begin() as connection:
        migrate_jobqueue(Operations(MigrationContext.configure(connection)), 0, LATEST)
    yield engine
    fail_on_connections(server.url(name))
    server.drop_database(name)


def test_a_database_that_is_not_utf_8(latin_engine: Engine) -> None:
    """Payloads are read as they were meant, and an error that this database can't hold still lets the job settle."""
    job_id = add_job(latin_engine, payload={"name": "é"})
    engine = runner_engine(latin_engine.url, "runner-1", deadline=MINUTE)
    store = Store(engine, name="runner-1")
    (job,) = store.claim(token=uuid4(), quotas={"default": 1}, kinds=["test"], lease=MINUTE)
    assert job.payload == {"name": "é"}
    (settled,) = store.settle([Settlement(job_id, job.token, Verb.RETRY, error="\U0001f600")])
    assert (settled.landing, settled.fault) == (
        Landing.LANDED,
        "UntranslatableCharacter, SQLSTATE 22P05",
    )
    assert "could not be stored" in read_job(latin_engine, job_id).last_error
    store.close()
    engine.dispose()
