"""The directive itself: what it refuses, its way back, and tenants by schema translation."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import op
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, create_engine, inspect

from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.migrations.directive import MigrateJobqueueOp
from sa_jobqueue.models import SCHEMA_VERSION, metadata
from tests.support.catalogue import everything, job_table


def operations(connection: Connection) -> Operations:
    return Operations(MigrationContext.configure(connection))


@pytest.mark.parametrize(
    "versions",
    [(0, LATEST + 1), (-1, 1), (1, -1), (LATEST + 5, 0), ("0", 1), (0, 1.0), (False, True), (None, 1)],
)
def test_bad_versions_are_refused_before_anything_changes(
    empty_database_url: str, versions: tuple[Any, Any]
) -> None:
    """A version that this release does not have is named, and no statement is sent."""
    engine = create_engine(empty_database_url)
    before = everything(empty_database_url)
    with engine.begin() as connection, pytest.raises(ValueError, match="whole number from 0 to"):
        migrate_jobqueue(operations(connection), *versions)
    engine.dispose()
    assert everything(empty_database_url) == before


def test_standing_still_changes_nothing(empty_database_url: str) -> None:
    """From a version to itself there is nothing to do."""
    engine = create_engine(empty_database_url)
    before = everything(empty_database_url)
    with engine.begin() as connection:
        migrate_jobqueue(operations(connection), 0, 0)
        migrate_jobqueue(operations(connection), LATEST, LATEST)
    engine.dispose()
    assert everything(empty_database_url) == before


def test_the_directive_knows_its_way_back() -> None:
    """Alembic asks an operation for its reverse: never one that drops jobs."""
    operation = MigrateJobqueueOp(0, 1, schema="jobs", drop_jobs=True)
    back = operation.reverse()
    assert (back.from_version, back.to_version, back.schema, back.drop_jobs) == (1, 0, "jobs", False)
    assert operation.to_diff_tuple() == ("migrate_jobqueue", 0, 1)


def test_the_models_need_the_newest_step() -> None:
    """A release asks the database for the version that its own steps install."""
    assert SCHEMA_VERSION == LATEST


def test_a_schema_for_each_tenant(empty_database_url: str) -> None:
    """Without an explicit schema SQLAlchemy's translation map decides, for every statement of the steps."""
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA tenant")
        translated = connection.execution_options(schema_translate_map={None: "tenant"})
        migrate_jobqueue(operations(translated), 0, LATEST)
    with engine.begin() as connection:
        migrate_jobqueue(operations(connection), 0, LATEST)
    assert job_table(empty_database_url, "tenant") == job_table(empty_database_url)
    with engine.begin() as connection:
        translated = connection.execution_options(schema_translate_map={None: "tenant"})
        migrate_jobqueue(operations(translated), LATEST, 0)
        assert connection.exec_driver_sql("SELECT to_regclass('tenant.jobqueue_jobs')").scalar_one() is None
        assert (
            connection.exec_driver_sql("SELECT to_regclass('public.jobqueue_jobs')").scalar_one() is not None
        )
    engine.dispose()


def test_the_typed_form_is_the_directive(empty_database_url: str) -> None:
    """`migrate_jobqueue(op, ...)`, for histories that are type-checked, makes the same table and takes it away."""
    engine = create_engine(empty_database_url)
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migrate_jobqueue(op, 0, LATEST)
    typed = everything(empty_database_url)
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migrate_jobqueue(op, LATEST, 0)
        assert not inspect(connection).has_table("jobqueue_jobs")
        op.migrate_jobqueue(0, LATEST)
    engine.dispose()
    assert everything(empty_database_url) == typed


def test_the_models_take_away_what_they_make(empty_database_url: str) -> None:
    """`create_all()` and `drop_all()`, for tests of applications: the trigger's function comes and goes with the tables."""
    engine = create_engine(empty_database_url)
    before = everything(empty_database_url)
    for _ in range(2):
        metadata.create_all(engine)
        assert everything(empty_database_url)["functions"]
        metadata.drop_all(engine)
        assert everything(empty_database_url) == before
    engine.dispose()
