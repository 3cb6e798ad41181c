"""The command line: options become settings, trouble becomes a message and an exit code."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from sqlalchemy.exc import OperationalError

from sa_jobqueue import logs
from sa_jobqueue.cli import cli
from sa_jobqueue.cli import run as run_command
from sa_jobqueue.errors import ConfigurationError, SchemaVersionError
from sa_jobqueue.runner import QueueSettings
from tests.support import forked
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
URL = "postgresql://user:hunter2@db.example/app"
APP = """
from sa_jobqueue.registry import Registry
jobs = Registry()
@jobs.handler("document.embed", queue="ai")
def embed(): pass
@jobs.handler("mail.send")
def send(): pass
"""


class FakeRunner:
    """Stands where the runner stands: remembers what it was made of, and ends as it is told."""

    made: SimpleNamespace
    ending: int | Exception = 0

    def __init__(self, registry: Any, database: Any, settings: Any, *, subscribers: Any) -> None:
        FakeRunner.made = SimpleNamespace(
            registry=registry, url=database, settings=settings, subscribers=subscribers
        )

    def run(self, *, handle_signals: bool) -> int:
        assert handle_signals
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending


@pytest.fixture(autouse=True)
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with an application, the current one; no variables from outside; a runner that doesn't run."""
    for name in [name for name in os.environ if name.startswith("SA_JOBQUEUE_") or name == "DATABASE_URL"]:
        monkeypatch.delenv(name)
    (tmp_path / "cli_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("sa_jobqueue.cli.run.Runner", FakeRunner)
    monkeypatch.setattr(FakeRunner, "ending", 0)
    yield
    sys.modules.pop("cli_app", None)


def invoke(*arguments: str, **environment: str) -> Result:
    """`sa-jobqueue run cli_app:jobs ...` in this process."""
    return CliRunner().invoke(cli, ["run", "cli_app:jobs", *arguments], env=environment)


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with the real runner."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables = inherited | {"PYTHONPATH": str(ROOT)} | environment
    return forked.run(["sa_jobqueue", *arguments], cwd=cwd, env=variables, timeout=PATIENCE)


# --- settings ---------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    """Without options every queue that a handler names is served, with the documented settings."""
    result = invoke(DATABASE_URL=URL)
    assert (result.exit_code, result.output) == (0, "")
    made = FakeRunner.made
    assert made.url.render_as_string(hide_password=False) == URL.replace("postgresql", "postgresql+psycopg")
    assert made.registry.kinds == ("document.embed", "mail.send")
    assert made.subscribers == [logs.log_event]
    settings = made.settings
    assert settings.queues is None  # every queue that a handler names
    assert (settings.lease, settings.poll_interval) == (timedelta(minutes=2), timedelta(seconds=1))
    assert (settings.grace, settings.burst, settings.name) == (timedelta(seconds=25), False, None)
    assert settings.timeout is None
    assert (settings.listen, settings.listen_url) == (True, None)


def test_options() -> None:
    """Every option reaches the settings."""
    arguments = [
        "--queues",
        "ai:4,default,mail@thread,web:200@asyncio",
        "--lease",
        "30s",
        "--poll-interval",
        "500ms",
        "--grace",
        "0s",
    ]
    arguments += ["--timeout", "10m", "--burst", "--name", "pod-7"]
    arguments += ["--no-listen", "--listen-url", "postgresql://direct/shop"]
    assert invoke(*arguments, "--database-url", URL).exit_code == 0
    settings = FakeRunner.made.settings
    assert settings.queues == {
        "ai": 4,
        "default": 10,
        "mail": QueueSettings(10, "thread"),
        "web": QueueSettings(200, "asyncio"),
    }
    assert (settings.lease, settings.poll_interval) == (timedelta(seconds=30), timedelta(milliseconds=500))
    assert (settings.grace, settings.burst, settings.name) == (timedelta(0), True, "pod-7")
    assert settings.timeout == timedelta(minutes=10)
    assert not settings.listen
    assert str(settings.listen_url) == "postgresql+psycopg://direct/shop"


def test_variables() -> None:
    """Every option with a value can be set by the environment, as containers want it; empty is unset."""
    result = invoke(
        DATABASE_URL=URL,
        SA_JOBQUEUE_QUEUES="ai:1",
        SA_JOBQUEUE_LEASE="1m",
        SA_JOBQUEUE_POLL_INTERVAL="2s",
        SA_JOBQUEUE_GRACE="",
        SA_JOBQUEUE_NAME="n",
        SA_JOBQUEUE_LISTEN_URL="postgresql://direct/shop",
        SA_JOBQUEUE_NO_LISTEN="1",
        SA_JOBQUEUE_SCHEMA="",
        SA_JOBQUEUE_LOG_FORMAT="",
    )
    assert result.exit_code == 0, result.output
    settings = FakeRunner.made.settings
    assert (settings.queues, settings.lease, settings.name) == ({"ai": 1}, timedelta(minutes=1), "n")
    assert (settings.poll_interval, settings.grace) == (timedelta(seconds=2), timedelta(seconds=25))
    assert (settings.listen, str(settings.listen_url)) == (False, "postgresql+psycopg://direct/shop")


@pytest.mark.parametrize(
    ("option", "first", "second", "host"),
    [
        ("option", "first", "second", "option"),
        ("", "first", "second", "first"),
        (None, "first", "second", "first"),
        (None, "", "second", "second"),
        (None, " ", "second", "second"),
        (None, None, "second", "second"),
    ],
)
def test_the_database_url_comes_from_the_first_that_is_set(
    option: str | None, first: str | None, second: str | None, host: str
) -> None:
    """The option, then our own variable, then the one that platforms set; an empty one is none."""

    def url(name: str | None) -> str | None:
        return f"postgres://{name}/d" if name and name.strip() else name

    given = {"SA_JOBQUEUE_DATABASE_URL": url(first), "DATABASE_URL": url(second)}
    arguments = [] if option is None else ["--database-url", url(option) or ""]
    result = invoke(*arguments, **{name: value for name, value in given.items() if value is not None})
    assert result.exit_code == 0, result.output
    assert FakeRunner.made.url.host == host


# --- usage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lease", "30"], 'say "30s" or "30m"'),
        (["--grace", "soon"], "'soon' is no duration"),
        (["--timeout", "forever"], "1h or 1d, or never"),
        (["--keep-done", "never"], "1h or 1d, or forever"),
        (["--lease", "1ms"], "lease=1ms: must be from 300ms"),
        (["--poll-interval", "0s"], "poll_interval=0s: must be from 1ms"),
        (["--queues", "ai:four"], "queue 'ai': 'four' is no number; write it as ai:200@asyncio,default:10"),
        (
            ["--queues", "ai:0"],
            "queues['ai']=0: the number of handlers at once must be a whole number from 1 to 100000",
        ),
        (["--queues", "ai:-1"], "'-1' is no number"),
        (
            ["--queues", "ai:4@asynico"],
            "queue 'ai': no executor 'asynico', there is thread or asyncio; write it as",
        ),
        (
            ["--queues", "ai:4@"],
            "queue 'ai': no executor '', there is thread or asyncio; write it as ai:200@asyncio",
        ),
        (["--queues", "ai@asyncio:4"], "queue 'ai': no executor 'asyncio:4'"),
        (
            ["--queues", "ai:0@asyncio"],
            "the number of handlers at once must be a whole number from 1 to 100000",
        ),
        (["--queues", "ai:1,ai:2"], "queue 'ai' is named twice"),
        (["--queues", "ai:1,"], "a name can't be blank"),
        (["--queues", ":4"], "a name can't be blank"),
        (["--name", "a\nb"], "--name: the character '\\n' can't be part of a name"),
        (["--log-format", "xml"], "'xml' is not one of"),
        (["--queue", "ai:1"], "--queues"),
    ],
)
def test_silly_settings_are_usage_errors(arguments: list[str], message: str) -> None:
    """Code 2, and the message says what would have worked."""
    result = invoke(*arguments, DATABASE_URL=URL)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split()).replace("\\\\n", "\\n")


def test_no_url_names_both_variables() -> None:
    """The commonest first error tells how to go on."""
    result = invoke()
    assert result.exit_code == 2
    assert "no database URL: set SA_JOBQUEUE_DATABASE_URL or DATABASE_URL" in result.output


def test_other_databases_are_usage_errors() -> None:
    """SQLite can't hold the queue, and a password in a wrong URL isn't repeated."""
    result = invoke("--database-url", "mysql://u:hunter2@h/d")
    assert result.exit_code == 2
    assert "needs PostgreSQL" in result.output
    assert "hunter2" not in result.output


def test_a_missing_registry_is_a_usage_error() -> None:
    """Code 2, with the nearest names."""
    result = CliRunner().invoke(cli, ["run", "cli_app:jbos", "--database-url", URL])
    assert result.exit_code == 2
    assert "cli_app has no 'jbos', did you mean 'jobs'?" in result.output


def test_a_queue_that_no_handler_names_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt queue among right ones doesn't stay unserved in silence."""
    with caplog.at_level(logging.WARNING):
        assert invoke("--queues", "ai:1,defualt:1", DATABASE_URL=URL).exit_code == 0
    assert caplog.messages == ["no handler names the queue 'defualt', did you mean 'default'?"]


# --- endings ----------------------------------------------------------------------------------------------------

SHOWN = "postgresql+psycopg://user:***@db.example/app"
REFUSED = OperationalError("select 1", {}, Exception("connection refused\nfor password=hunter2"))


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        (0, 0, ""),
        (
            REFUSED,
            3,
            f"Error: can't reach the database at {SHOWN}: Exception: connection refused\nfor password=***\n",
        ),
        (
            SchemaVersionError("no tables: run: alembic upgrade head", installed=None, required=1),
            4,
            "Error: no tables: run: alembic upgrade head\n",
        ),
        (
            ConfigurationError("no handler on the queues asked for"),
            2,
            "Error: no handler on the queues asked for\n",
        ),
    ],
)
def test_each_ending_has_its_code(
    ending: int | Exception, code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Supervisors and scripts can tell the endings apart."""
    monkeypatch.setattr(FakeRunner, "ending", ending)
    result = invoke(DATABASE_URL=URL)
    assert (result.exit_code, result.output) == (code, message)


@pytest.mark.parametrize("code", [1, 7, 130, 143])
def test_what_still_runs_does_not_keep_the_process(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """When handlers may still run, because jobs were handed back or a loop died, nothing waits for their threads."""

    class HardExit(BaseException):
        pass

    def exit_hard(code: int) -> None:
        raise HardExit(code)

    monkeypatch.setattr(os, "_exit", exit_hard)
    monkeypatch.setattr(FakeRunner, "ending", code)
    with pytest.raises(HardExit) as caught:
        invoke(DATABASE_URL=URL)
    assert caught.value.args == (code,)


def test_an_unexpected_error_is_code_1_without_passwords(tmp_path: Path) -> None:
    """The traceback is shown, the password in it is not."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from sa_jobqueue.cli import main, run\n"
        "def fail(*_, **__): raise LookupError('postgresql://u:hunter2@h/d')\n"
        "sys.modules['sa_jobqueue.cli.run'].Runner = fail\n"
        f"sys.argv = ['sa-jobqueue', 'run', 'cli_app:jobs', '--database-url', '{URL}']\n"
        "main()\n"
    )
    result = subprocess.run(
        [sys.executable, script],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 1
    assert "LookupError: postgresql://u:***@h/d" in result.stderr
    assert "hunter2" not in result.stderr


# --- the real thing ---------------------------------------------------------------------------------------------


def test_help_documents_the_exit_codes(tmp_path: Path) -> None:
    """What supervisors rely on stands in --help, and `python -m sa_jobqueue` is the command."""
    result = command("run", "--help", cwd=tmp_path)
    assert result.returncode == 0
    for line in ("3      the database server can't be reached", "128+n  forced by a second signal"):
        assert line in result.stdout


def test_help_shows_how_a_duration_is_written() -> None:
    """`--lease DURATION` alone sends people to guess; every option says what it is for."""
    parameters = [
        parameter for parameter in cli.commands["run"].params if isinstance(parameter, click.Option)
    ]
    durations = [parameter for parameter in parameters if parameter.metavar == "DURATION"]
    assert len(durations) == 6
    for parameter in durations:
        assert "ritten as 500ms, 10s, 2m or 1h30m" in (parameter.help or "")
    assert [parameter.name for parameter in parameters if not parameter.help] == []


def test_version(tmp_path: Path) -> None:
    """The versions that a bug report needs."""
    result = command("--version", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("sa-jobqueue ")
    assert "SQLAlchemy 2." in result.stdout


def test_an_unreachable_server_is_code_3(tmp_path: Path) -> None:
    """With the real runner and the current folder importable: one message, no traceback, no password."""
    result = command("run", "cli_app:jobs", cwd=tmp_path, DATABASE_URL="postgres://u:hunter2@127.0.0.1:1/d")
    assert result.returncode == 3, result.stderr
    assert result.stderr.startswith(
        "Error: can't reach the database at postgresql+psycopg://u:***@127.0.0.1:1/d: "
    )
    assert "Traceback" not in result.stderr
    assert "hunter2" not in result.stderr


def test_missing_tables_are_code_4(tmp_path: Path, empty_database_url: str) -> None:
    """The message has the command that makes them, for the schema that was asked for."""
    result = command(
        "run", "cli_app:jobs", "--schema", "queue", cwd=tmp_path, DATABASE_URL=empty_database_url
    )
    assert result.returncode == 4, result.stderr
    assert "schema='queue'" in result.stderr
    assert "alembic upgrade head" in result.stderr


def test_a_burst_without_jobs_is_code_0_and_logs_json(tmp_path: Path, database_url: str) -> None:
    """The whole way with an empty queue."""
    result = command(
        "run", "cli_app:jobs", "--burst", "--log-format", "json", cwd=tmp_path, DATABASE_URL=database_url
    )
    assert result.returncode == 0, result.stderr
    first, *_, last = result.stderr.splitlines()
    assert '"event": "RunnerStarted"' in first
    assert '"event": "RunnerStopped"' in last


def test_an_application_that_disagrees_about_the_schema_is_told(tmp_path: Path) -> None:
    """Two schemas would mean jobs that nobody runs."""
    (tmp_path / "cli_app.py").write_text(
        "import sa_jobqueue.models as m\nm.configure(schema='theirs')\n" + APP
    )
    result = command("run", "cli_app:jobs", "--schema", "ours", cwd=tmp_path, DATABASE_URL=URL)
    assert result.returncode == 2
    assert "--schema ours, but cli_app:jobs configures 'theirs'" in result.stderr


def test_an_application_that_sets_up_logging_does_not_silence_the_runner(tmp_path: Path) -> None:
    """`logging.config.dictConfig` switches off the loggers that exist by then."""
    (tmp_path / "cli_app.py").write_text(
        "import logging.config\nlogging.config.dictConfig({'version': 1, 'handlers': {'h': {'class': "
        "'logging.StreamHandler'}}, 'root': {'handlers': ['h'], 'level': 'INFO'}})\n" + APP
    )
    arguments = ["--queues", "ai:1,defualt:1"]
    result = command("run", "cli_app:jobs", *arguments, cwd=tmp_path, DATABASE_URL="postgres://127.0.0.1:1/d")
    assert "no handler names the queue 'defualt'" in result.stderr


def test_the_library_does_not_import_click() -> None:
    """An application that only enqueues pays nothing for the command line."""
    code = (
        "import sys, sa_jobqueue, sa_jobqueue.registry, sa_jobqueue.runner; sys.exit('click' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=PATIENCE, check=False)
    assert result.returncode == 0


def test_the_command_can_be_taken_into_another_group() -> None:
    """An application with a command line of its own mounts ours."""
    assert cli.commands["run"] is run_command.run
