"""Where the queue's tables go, and what a revision is told that can't put them there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.testing.server import connect
from tests.support.application import write_application
from tests.support.catalogue import everything
from tests.support.databases import new_name

SCHEMAS = pytest.mark.parametrize("schema", ["jobs", 'Odd "name"', "it's"])


@pytest.fixture
def connection(empty_database_url: str) -> Iterator[Connection]:
    """A transaction on an empty database."""
    engine = create_engine(empty_database_url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def role(connection: Connection) -> Iterator[str]:
    """A role that may create nothing; the connection plays it until its transaction ends."""
    name = new_name()
    connection.exec_driver_sql(f"CREATE ROLE {name}")
    connection.exec_driver_sql("CREATE SCHEMA theirs")
    connection.exec_driver_sql(f"SET LOCAL ROLE {name}")
    yield name
    connection.rollback()


def migrate(connection: Connection, from_version: int, to_version: int, schema: str | None = None) -> None:
    migrate_jobqueue(
        Operations(MigrationContext.configure(connection)), from_version, to_version, schema=schema
    )


def notes(connection: Connection, from_version: int, to_version: int, schema: str | None = None) -> str:
    """What the error of this migration says below the server's words."""
    with pytest.raises(DBAPIError) as raised:
        migrate(connection, from_version, to_version, schema)
    return "\n".join(raised.value.__notes__)


@SCHEMAS
def test_a_missing_schema_is_created_and_stays(empty_database_url: str, tmp_path: Path, schema: str) -> None:
    """A user writes the name once; a downgrade takes the table and leaves the schema, which may hold other things."""
    application = write_application(tmp_path / "app", empty_database_url, schema=schema)
    for _ in range(2):
        application.upgrade()
        engine = create_engine(empty_database_url)
        assert sorted(inspect(engine).get_table_names(schema=schema)) == ["jobqueue_idle", "jobqueue_jobs"]
        application.downgrade("base")
        assert inspect(engine).get_table_names(schema=schema) == []
        assert schema in inspect(engine).get_schema_names()
        engine.dispose()


@SCHEMAS
def test_the_text_of_a_dry_run_creates_it_too(empty_database_url: str, tmp_path: Path, schema: str) -> None:
    """What `--sql` prints does the same as the command."""
    application = write_application(tmp_path / "app", empty_database_url, schema=schema)
    text = application.upgrade_text()
    with connect(empty_database_url) as connection:
        connection.execute(text.encode())
        by_text = everything(empty_database_url)
        connection.execute("DROP TABLE alembic_version")
    assert (schema,) in [row[:1] for row in by_text["schemas"]]
    with connect(empty_database_url) as connection:
        quoted = schema.replace('"', '""')
        connection.execute(f'DROP SCHEMA "{quoted}" CASCADE'.encode())
        connection.execute("DROP TABLE jobqueue_jobs_archive")
        connection.execute("DROP FUNCTION notify()")
        connection.execute("DROP TYPE job_status")
    application.upgrade()
    assert everything(empty_database_url) == by_text


def test_a_translated_schema_is_the_one_that_is_created(connection: Connection) -> None:
    """A tenant's schema in the place of the named one: nothing is made under the name itself."""
    translated = connection.execution_options(schema_translate_map={"jobs": "tenant"})
    migrate(translated, 0, LATEST, "jobs")
    assert sorted(inspect(connection).get_table_names(schema="tenant")) == ["jobqueue_idle", "jobqueue_jobs"]
    assert "jobs" not in inspect(connection).get_schema_names()


def test_a_role_that_may_create_no_schema_can_use_one_that_is_there(
    connection: Connection, role: str
) -> None:
    """Where administrators make the schemas, the application's role has rights in its own and no others."""
    connection.exec_driver_sql("RESET ROLE")
    connection.exec_driver_sql(f"GRANT ALL ON SCHEMA theirs TO {role}")
    connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
    migrate(connection, 0, LATEST, "theirs")
    assert sorted(inspect(connection).get_table_names(schema="theirs")) == ["jobqueue_idle", "jobqueue_jobs"]


@pytest.mark.parametrize("schema", ["missing", "theirs"])
def test_a_missing_right_is_named(connection: Connection, role: str, schema: str) -> None:
    """`permission denied` says neither where nor what to do."""
    assert f"may not do that in the schema '{schema}'" in notes(connection, 0, LATEST, schema)


def test_tables_that_are_there_already_are_explained(connection: Connection) -> None:
    """`already exists`: a second revision with the line, or create_all() in an older database."""
    migrate(connection, 0, LATEST)
    assert "mark this revision as done: alembic stamp" in notes(connection, 0, LATEST)


@pytest.mark.parametrize(("schema", "line"), [(None, "(0, 1)"), ("jobs", "(0, 1, schema='jobs')")])
def test_tables_that_are_not_there_are_explained(
    connection: Connection, schema: str | None, line: str
) -> None:
    """A downgrade, or a later step, in another schema than the first one was told."""
    for from_version, to_version in ((1, 0), (2, 1)):
        wanted = line.replace("1", str(from_version))
        assert f"op.migrate_jobqueue{wanted}" in notes(connection, from_version, to_version, schema)
        connection.rollback()


def test_the_idle_table_is_made_beside_the_job_table(connection: Connection) -> None:
    """With a search_path that has changed since version 1 the trigger would look in another schema, and tell nobody."""
    migrate(connection, 0, 1)
    connection.exec_driver_sql("CREATE SCHEMA first")
    connection.exec_driver_sql("SET LOCAL search_path = first, public")
    with pytest.raises(DBAPIError, match=r"another schema(?s:.*)public(?s:.*)migrate_jobqueue\(1, 2, schema"):
        migrate(connection, 1, 2)


def test_a_search_path_that_leads_nowhere_is_explained(connection: Connection) -> None:
    """`no schema has been selected to create in`."""
    connection.exec_driver_sql("SET LOCAL search_path = nowhere")
    assert f"op.migrate_jobqueue(0, {LATEST}, schema='jobs')" in notes(connection, 0, LATEST)


def test_other_errors_get_no_advice(connection: Connection) -> None:
    """What the directive has no cure for is left as the server said it."""
    migrate(connection, 0, LATEST)
    connection.exec_driver_sql("INSERT INTO jobqueue_jobs (kind) VALUES ('test')")
    with pytest.raises(DBAPIError, match="holds jobs") as raised:
        migrate(connection, LATEST, 0)
    assert not hasattr(raised.value, "__notes__")
