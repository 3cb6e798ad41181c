"""The project's own environment from the repository root, in processes of its own, with and without a schema."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sa_jobqueue.migrations import LATEST
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support import forked
from tests.support.catalogue import everything, job_table
from tests.support.databases import fresh_database
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
CREATE_ALL = """
import os
from sqlalchemy import create_engine
from sa_jobqueue.models import Job
engine = create_engine(os.environ["SA_JOBQUEUE_DATABASE_URL"])
Job.metadata.create_all(engine)
"""
SCHEMAS = pytest.mark.parametrize("schema", [None, "jobs"])


def _variables(url: str | None, schema: str | None) -> dict[str, str]:
    ours = ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL", "SA_JOBQUEUE_SCHEMA")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {} if url is None else {"SA_JOBQUEUE_DATABASE_URL": url}
    return environment | ({} if schema is None else {"SA_JOBQUEUE_SCHEMA": schema})


def alembic_process(url: str | None, schema: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Alembic's command at the repository root, with the variables that the environment reads."""
    return forked.run(["alembic", *arguments], cwd=ROOT, env=_variables(url, schema), timeout=PATIENCE)


def alembic(url: str | None, schema: str | None, *arguments: str) -> str:
    result = alembic_process(url, schema, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def left_over(url: str) -> list[tuple[object, ...]]:
    found = everything(url)
    return [row[:2] for what in ("relations", "functions", "triggers") for row in found[what]]


@SCHEMAS
def test_up_check_down(empty_database_url: str, schema: str | None) -> None:
    """`alembic upgrade head` makes what the models describe, and `downgrade base` takes all of it away."""
    url = empty_database_url
    assert alembic_process(url, schema, "check").returncode != 0
    alembic(url, schema, "upgrade", "head")
    assert "No new upgrade operations detected" in alembic(url, schema, "check")
    full = everything(url)
    alembic(url, schema, "downgrade", "base")
    assert left_over(url) == []
    alembic(url, schema, "upgrade", "head")
    assert everything(url) == full


@SCHEMAS
def test_steps_and_models_make_the_same_table(
    server: PostgresServer, empty_database_url: str, schema: str | None
) -> None:
    """The frozen steps and the models agree in every column, default, constraint, index, parameter and comment."""
    alembic(empty_database_url, schema, "upgrade", "head")
    with fresh_database(server) as url:
        if schema is not None:
            with connect(url) as connection:
                connection.execute(f"CREATE SCHEMA {schema}".encode())
        variables = _variables(url, schema)
        subprocess.run([sys.executable, "-c", CREATE_ALL], cwd=ROOT, env=variables, check=True)
        modelled = job_table(url, schema or "public")
    migrated = job_table(empty_database_url, schema or "public")
    assert modelled == migrated
    assert migrated["comment"] == [(f"sa_jobqueue schema version {LATEST}",)]
    assert len(migrated["options"][0][0]) == 4


@SCHEMAS
def test_the_text_of_a_dry_run(empty_database_url: str, schema: str | None) -> None:
    """`--sql` needs neither server nor URL, and its text does what the command does, both ways."""
    url = empty_database_url
    upgrade = alembic(None, schema, "upgrade", "head", "--sql")
    downgrade = alembic(None, schema, "downgrade", "head:base", "--sql")
    with connect(url) as connection:
        connection.execute(upgrade.encode())
    by_text = everything(url)
    with connect(url) as connection:
        connection.execute(downgrade.encode())
    assert left_over(url) == []
    alembic(url, schema, "upgrade", "head")
    assert everything(url) == by_text


def test_without_a_url_it_names_the_variables() -> None:
    """No database is guessed: the message says which variables are read."""
    result = alembic_process(None, None, "upgrade", "head")
    assert result.returncode != 0
    assert "SA_JOBQUEUE_DATABASE_URL or DATABASE_URL" in result.stderr
