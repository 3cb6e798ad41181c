"""The command on a real database: in this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, select

from sa_jobqueue.cli import cli
from sa_jobqueue.models import jobs
from tests.support.forked import Forked, start_python

ROOT = Path(__file__).parents[2]
Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables from outside, neither of the queue nor of the terminal."""
    names = [name for name in os.environ if name.startswith("SA_JOBQUEUE_")]
    for name in [*names, "DATABASE_URL", "COLUMNS", "NO_COLOR"]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def command(database_url: str) -> Command:
    """`sa-jobqueue ...` in this process, on the test's database."""

    def call(*arguments: object, answer: str | None = None, **environment: str) -> Result:
        variables = {"DATABASE_URL": database_url, **environment}
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=answer, env=variables)

    return call


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody can be asked; nobody looks at the progress."""
    monkeypatch.setattr("sa_jobqueue.cli.asking.is_terminal", lambda stream: stream is not sys.stderr)


def process(*arguments: str, url: str, **settings: Any) -> subprocess.Popen[str]:
    """The real command, in a process of its own; settings of its start take a real start."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "DATABASE_URL": url}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    start = start_python if settings else Forked
    return start(["sa_jobqueue", *arguments], env=environment, cwd=Path.cwd(), **streams, **settings)


def objects(result: Result) -> list[dict[str, Any]]:
    """The JSON lines of standard output."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def rows(engine: Engine) -> list[Any]:
    """Every job, whole."""
    with engine.connect() as connection:
        return list(connection.execute(select(jobs).order_by(jobs.c.id)).all())
