"""`sa-jobqueue run` against a real server: what goes wrong at the start, in one message and an exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.support.runners import LEDGER, ROOT, add, ledger, process, row, wait_for_row
from tests.support.waiting import PATIENCE, wait_until

APP = "tests.apps.ledger:jobs"


def _run(*arguments: str, url: str | None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    if url is not None:
        environment["SA_JOBQUEUE_DATABASE_URL"] = url
    return subprocess.run(
        [sys.executable, "-m", "sa_jobqueue", "run", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_without_a_url(tmp_path: Path) -> None:
    """No URL: the variables are named, and nothing is guessed."""
    (tmp_path / "app.py").write_text("from sa_jobqueue import Registry\njobs = Registry()\n")
    done = _run("app:jobs", url=None, cwd=tmp_path)
    assert done.returncode == 2
    assert "SA_JOBQUEUE_DATABASE_URL" in done.stderr


def test_an_unreachable_server() -> None:
    """Nobody listens: the address is shown, the password is not."""
    done = _run(APP, url="postgresql://me:S3CR3T@127.0.0.1:1/app")
    assert done.returncode == 3
    assert "127.0.0.1" in done.stderr
    assert "S3CR3T" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_database_without_the_tables(empty_database_url: str) -> None:
    """The command that makes them is in the message."""
    done = _run(APP, url=empty_database_url)
    assert done.returncode == 4
    assert "alembic upgrade head" in done.stderr
    assert "op.migrate_jobqueue(0, 2)" in done.stderr


def test_tables_older_than_the_code(engine: Engine, database_url: str) -> None:
    """A deploy before its migration is told which step is missing."""
    with engine.begin() as connection:
        connection.execute(text("COMMENT ON TABLE jobqueue_jobs IS 'sa_jobqueue schema version 0'"))
    done = _run(APP, url=database_url)
    assert done.returncode == 4
    assert "alembic upgrade head" in done.stderr


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("tests.apps.leger:jobs", "leger"),
        ("tests.apps.ledger:job", "jobs"),
        ("tests.apps.ledger", "tests.apps.ledger:jobs"),
    ],
)
def test_a_registry_that_is_not_there(target: str, hint: str, database_url: str) -> None:
    """Module and name are told apart, and the nearest name is offered."""
    done = _run(target, url=database_url)
    assert done.returncode == 2
    assert hint.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_no_handler_on_the_queues_asked_for(database_url: str) -> None:
    """A misspelt queue is told, with the queues that there are."""
    done = _run(APP, "--queues", "defualt:3", url=database_url)
    assert done.returncode == 2
    assert "defualt" in done.stderr
    assert "default" in done.stderr


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_every_spelling_of_the_url_works(engine: Engine, database_url: str, scheme: str) -> None:
    """What other tools call the same database is understood, on every release line of SQLAlchemy."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "quick")
    url = database_url.replace("postgresql+psycopg", scheme)
    if scheme == "postgresql+asyncpg":
        done = _run(APP, "--burst", "--database-url", url, url=database_url)
    else:
        done = _run(APP, "--burst", url=url)
    assert done.returncode == 0, done.stderr
    assert row(engine, job).status == "done"


def test_a_chosen_schema(server_url_with_schema: str) -> None:
    """With --schema everything happens there, and nothing is looked for on the search path."""
    done = _run(APP, "--burst", "--schema", "jobs", url=server_url_with_schema)
    assert done.returncode == 0, done.stderr
    engine = create_engine(server_url_with_schema)
    with engine.connect() as connection:
        status = connection.execute(text("SELECT status FROM jobs.jobqueue_jobs")).scalar_one()
    engine.dispose()
    assert status == "done"


@pytest.fixture
def server_url_with_schema(empty_database_url: str) -> str:
    """A database whose queue lives in a schema of its own, with one job in it."""
    subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "SA_JOBQUEUE_DATABASE_URL": empty_database_url,
            "SA_JOBQUEUE_SCHEMA": "jobs",
        },
        check=True,
        capture_output=True,
    )
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        connection.execute(text("INSERT INTO jobs.jobqueue_jobs (kind) VALUES ('quick')"))
    engine.dispose()
    return empty_database_url


def test_a_first_signal_ends_cleanly_and_a_second_at_once(engine: Engine, database_url: str) -> None:
    """SIGTERM waits for the handler; a second one does not, and the exit code says which signal it was."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "nap", '{"seconds": 60}')
    with process(APP, database_url, "--grace", "30s") as runner:
        wait_until(lambda: ledger(engine), what="the handler")
        runner.send(signal.SIGTERM)
        wait_until(lambda: "SIGTERM" in runner.text, what="the first signal")
        assert runner.insist(signal.SIGTERM) == 128 + signal.SIGTERM
        assert "ended at once by a second SIGTERM" in runner.text
    assert row(engine, job).status == "running"


def test_what_outlives_the_grace_period_is_handed_back(engine: Engine, database_url: str) -> None:
    """The interrupted job is ready again at once, its attempt counted, and the exit code tells."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "nap", '{"seconds": 60}')
    with process(APP, database_url, "--grace", "200ms") as runner:
        wait_until(lambda: ledger(engine), what="the handler")
        runner.send(signal.SIGINT)
        assert runner.wait() == 7
    ready = wait_for_row(engine, job, lambda it: it.status == "ready")
    assert (ready.attempts, ready.returned) == (1, 0)
    assert "shut down" in ready.last_error
    assert ready.run_at <= ready.updated_at
