"""How a command ends: trouble with the server, and in a process of its own signals, pipes and a terminal."""

from __future__ import annotations

import os
import pty
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, func, insert, select, text

from sa_jobqueue.cli import cli
from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.models import jobs
from tests.cli.conftest import process, rows
from tests.support.jobs import add_job
from tests.support.waiting import PATIENCE, wait_until

COMMANDS = [
    ("jobs", "list"),
    ("jobs", "show", "1"),
    ("jobs", "cancel", "1"),
    ("prune", "--dry-run"),
    ("stats",),
]


def ended(*arguments: str, url: str) -> tuple[int, str, str]:
    """Code, output and error output of the command as a process."""
    with process(*arguments, url=url) as running:
        out, err = running.communicate(timeout=PATIENCE)
    return running.returncode, out, err


def finished(*arguments: str, url: str) -> tuple[int, str, str]:
    """In this process, which is as good as another where only the answer counts: but a process has one schema."""
    if "--schema" in arguments:
        return ended(*arguments, url=url)
    result = CliRunner().invoke(cli, arguments, env={"DATABASE_URL": url})
    return result.exit_code, result.stdout, result.stderr


def test_a_process_ends_as_it_should(database_url: str) -> None:
    """The command that people type: its code and its streams are those of the answer."""
    for url in (database_url, "postgres://me:S3CR3T@127.0.0.1:1/app"):
        assert ended("jobs", "list", url=url) == finished("jobs", "list", url=url)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_an_unreachable_server(arguments: tuple[str, ...]) -> None:
    """Code 3, the address and never the password, as with `run`."""
    code, out, err = finished(*arguments, url="postgres://me:S3CR3T@127.0.0.1:1/app")
    assert code == 3
    assert err.startswith("Error: can't reach the database at postgresql+psycopg://me:***@127.0.0.1:1/app: ")
    assert "Traceback" not in err
    assert "S3CR3T" not in out + err


@pytest.mark.parametrize("arguments", [("jobs", "list"), ("prune", "--yes", "--schema", "elsewhere")])
def test_missing_tables(arguments: tuple[str, ...], empty_database_url: str) -> None:
    """Code 4 and the command that makes them, for the schema that was asked for."""
    code, _, err = finished(*arguments, url=empty_database_url)
    assert code == 4
    assert "alembic upgrade head" in err
    assert ("elsewhere" in err) == ("elsewhere" in arguments)


def test_tables_older_than_the_code(engine: Engine, database_url: str) -> None:
    """A console of a newer release than the schema says which step is missing."""
    with engine.begin() as connection:
        connection.execute(text("COMMENT ON TABLE jobqueue_jobs IS 'sa_jobqueue schema version 0'"))
    code, _, err = finished("stats", url=database_url)
    assert code == 4
    assert "op.migrate_jobqueue(0, 2)" in err


def test_no_url() -> None:
    """Both variables are named."""
    code, _, err = finished("stats", url="")
    assert code == 2
    assert "no database URL: set SA_JOBQUEUE_DATABASE_URL or DATABASE_URL" in err


def test_another_schema(empty_database_url: str) -> None:
    """--schema leads to the tables of that schema."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from sqlalchemy import NullPool, create_engine

    with create_engine(empty_database_url, poolclass=NullPool).begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        migrate_jobqueue(operations, 0, LATEST, schema="queue")
        connection.execute(text("INSERT INTO queue.jobqueue_jobs (kind) VALUES ('there')"))
    code, out, _ = finished("jobs", "list", "--schema", "queue", url=empty_database_url)
    assert code == 0
    assert "there" in out


def test_a_reader_that_has_seen_enough(engine: Engine, database_url: str) -> None:
    """`| head` closes the pipe early: no traceback, no complaint."""
    with engine.begin() as connection:
        connection.execute(insert(jobs), [{"kind": "k" * 200}] * 2000)
    with process("jobs", "list", "--limit", "2000", "--json", url=database_url) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith('{"id": 2000')
        running.stdout.close()
        complaint = running.stderr.read()
        running.wait(timeout=PATIENCE)
    assert complaint == ""


def test_a_closed_standard_output(engine: Engine, database_url: str) -> None:
    """Started without any standard output, the command still ends in order."""
    add_job(engine)
    with process("jobs", "list", url=database_url, preexec_fn=lambda: os.close(1)) as running:
        _, err = running.communicate(timeout=PATIENCE)
    assert "Traceback" not in err


def test_an_interruption_on_the_way(engine: Engine, database_url: str) -> None:
    """Ctrl-C while a batch waits for a locked row: nothing of that batch is written, and the code says so."""
    with engine.begin() as connection:
        connection.execute(insert(jobs), [{"kind": "test"}] * 3)
    before = rows(engine)
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with engine.begin() as holder:
        holder.execute(select(jobs.c.id).where(jobs.c.id == 2).with_for_update())
        with process("jobs", "cancel", "--all", "--yes", url=database_url) as running:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
                wait_until(lambda: watcher.execute(waiting).scalar_one(), what="the command waits")
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "left: 3;" in err
    assert out == ""
    assert rows(engine) == before


def test_on_a_terminal(engine: Engine, database_url: str) -> None:
    """With a terminal around it the command colours the status, fits the width and asks before it acts."""
    for _ in range(2):
        add_job(engine, kind="k" * 150, status="dead", finished_at=func.now())
    listing = on_a_terminal("jobs", "list", url=database_url)
    assert "\x1b[31mdead" in listing
    plain = listing.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.splitlines())) <= 80
    question = on_a_terminal("jobs", "redrive", "--all", url=database_url, answer="n\n")
    assert "Redrive 2 jobs (2 dead)? [y/N]" in question
    assert "Aborted!" in question
    assert [row.status for row in rows(engine)] == ["dead", "dead"]


def on_a_terminal(*arguments: str, url: str, answer: str = "") -> str:
    """What the command shows on a terminal of 80 columns, and reads from it."""
    import sys

    root = Path(__file__).parents[2]
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(root),
            "DATABASE_URL": url,
            "TERM": "xterm",
            "COLUMNS": "80",
        }
        os.execve(sys.executable, [sys.executable, "-m", "sa_jobqueue", *arguments], environment)
    os.write(terminal, answer.encode())
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:  # Linux's way to say that the other side has gone
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n")
