"""The store's own connection, and the version of the tables behind it."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import SchemaVersionError
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, read_job


def claim_one(store: Store) -> int:
    return len(store.claim(token=uuid4(), quotas={"default": 1}, kinds=["test"], lease=MINUTE))


def test_one_connection_for_all_calls(engine: Engine, store: Store) -> None:
    """A store opens one connection and keeps it; nothing is left idle in a transaction."""
    for _ in range(3):
        add_job(engine)
        assert claim_one(store) == 1
    query = (
        "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with engine.connect() as connection:
        states = list(connection.exec_driver_sql(query).scalars())
    assert states == ["idle"]


def test_a_call_is_durable_on_return(engine: Engine, store: Store) -> None:
    """A claim is seen by everybody as soon as it has answered."""
    job_id = add_job(engine)
    claim_one(store)
    assert read_job(engine, job_id).status == "running"


def test_reset_connects_anew(engine: Engine, store: Store) -> None:
    """After its connection broke a store goes on with another one once it has been reset."""
    add_job(engine)
    store.installed_version()
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    admin = create_engine(engine.url)
    with admin.connect() as connection:
        connection.exec_driver_sql(kill)
    admin.dispose()
    with pytest.raises(DBAPIError):
        claim_one(store)
    store.reset()
    store.reset()
    assert claim_one(store) == 1


def test_close_and_open_again(engine: Engine, store: Store) -> None:
    """A closed store holds no connection; a later call opens one."""
    add_job(engine)
    store.installed_version()
    store.close()
    store.close()
    assert engine.pool.checkedout() == 0
    assert claim_one(store) == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_default_isolation(engine: Engine, level: str) -> None:
    """Where database or role make another isolation the default, every statement still runs at READ COMMITTED."""
    name = engine.url.database
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_isolation TO '{level}'")
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF current_setting('transaction_isolation') <> 'read committed' THEN"
            " RAISE 'another isolation'; END IF; RETURN new; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    strict = create_engine(engine.url)
    store = Store(strict, name="strict")
    job_id = add_job(strict)
    assert claim_one(store) == 1
    assert read_job(strict, job_id).status == "running"
    with pytest.raises(DBAPIError):
        store._connection.rows(text("SELECT 1 / 0"))
    assert store.installed_version() == 2
    store.close()
    strict.dispose()


def test_installed_version(engine: Engine, store: Store) -> None:
    """The version is read from the table's comment, and it is enough for this release."""
    assert store.installed_version() == 2
    store.check_schema()


def test_a_newer_schema_is_fine(engine: Engine, store: Store) -> None:
    """During a deployment old processes meet the new schema, which stays usable for them."""
    with engine.begin() as connection:
        connection.exec_driver_sql("COMMENT ON TABLE jobqueue_jobs IS 'sa_jobqueue schema version 12'")
    assert store.installed_version() == 12
    store.check_schema()


def test_an_older_schema_names_the_way_up(engine: Engine, store: Store) -> None:
    """Tables that are too old stop the runner with the line and the command that mend it."""
    with engine.begin() as connection:
        connection.exec_driver_sql("COMMENT ON TABLE jobqueue_jobs IS 'sa_jobqueue schema version 1'")
    with pytest.raises(
        SchemaVersionError, match=r"version 1.*needs 2.*migrate_jobqueue\(1, 2\).*alembic upgrade head"
    ) as caught:
        store.check_schema()
    assert (caught.value.installed, caught.value.required) == (1, 2)


@pytest.mark.parametrize("table", [None, "CREATE TABLE jobqueue_jobs (id int)"])
def test_no_schema_names_the_way_up(empty_database_url: str, table: str | None) -> None:
    """Without our table, or with a table of that name that is not ours, the error says what to do."""
    engine = create_engine(empty_database_url)
    if table is not None:
        with engine.begin() as connection:
            connection.exec_driver_sql(table)
    store = Store(engine, name="runner")
    assert store.installed_version() is None
    with pytest.raises(
        SchemaVersionError, match=r"no jobqueue_jobs .*migrate_jobqueue\(0, 2\).*alembic upgrade head"
    ):
        store.check_schema()
    store.close()
    engine.dispose()
