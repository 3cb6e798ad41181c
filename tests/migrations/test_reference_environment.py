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
from tests.support.catalogue import everything, job_table
from tests.support.databases import fresh_database

ROOT = Path(__file__).resolve().parents[2]
CREATE_ALL = """
import os
from sqlalchemy import create_engine
from sa_jobqueue.models import Job
engine = create_engine(os.environ["SA_JOBQUEUE_DATABASE_URL"])
Job.metadata.create_all(engine)
"""
SCHEMAS = pytest.mark.parametrize("schema", [None, "jobs"])


def python(
    url: str | None, schema: str | None, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """A Python process at the repository root, with the variables that the environment reads."""
    ours = ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL", "SA_JOBQUEUE_SCHEMA")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {} if url is None else {"SA_JOBQUEUE_DATABASE_URL": url}
    environment |= {} if schema is None else {"SA_JOBQUEUE_SCHEMA": schema}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert not check or result.returncode == 0, result.stderr
    return result


def alembic(url: str | None, schema: str | None, *arguments: str) -> str:
    return python(url, schema, "-m", "alembic", *arguments).stdout


def left_over(url: str) -> list[tuple[object, ...]]:
    found = everything(url)
    return [row[:2] for what in ("relations", "functions", "triggers") for row in found[what]]


@SCHEMAS
def test_up_check_down(empty_database_url: str, schema: str | None) -> None:
    """`alembic upgrade head` makes what the models describe, and `downgrade base` takes all of it away."""
    url = empty_database_url
    assert python(url, schema, "-m", "alembic", "check", check=False).returncode != 0
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
        python(url, schema, "-c", CREATE_ALL)
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
    result = python(None, None, "-m", "alembic", "upgrade", "head", check=False)
    assert result.returncode != 0
    assert "SA_JOBQUEUE_DATABASE_URL or DATABASE_URL" in result.stderr
