"""The demo of examples/documents as people run it: a process, its output, its exit code, and what it leaves in the database."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from examples.documents.demo.checks import check_everything
from examples.documents.demo.leftovers import Leftovers, take_away
from examples.documents.demo.scene import Scene
from examples.documents.demo.terminal import Terminal
from examples.documents.demo.trouble import DemoError
from examples.documents.models import Base
from examples.documents.options import as_arguments, parser
from tests.support import forked
from tests.support.databases import fail_on_connections
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of every kind of file: one of them twice, one without a word in it, and one that is no document."""
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "plan.txt").write_bytes("Der Entwurf für den Café-Umbau".encode("cp1252"))
    (folder / "copy of plan.txt").write_bytes((folder / "plan.txt").read_bytes())
    (folder / "deep" / "kraken.md").write_text(
        "# A kraken\n\nlives in the deep [sea](https://example.org).\n"
    )
    (folder / "page.html").write_text("<p>Bread &amp; <b>butter</b></p><script>var nothing</script>")
    (folder / "silent.html").write_text("<script>var nothing</script>")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


@pytest.fixture
def target(empty_database_url: str) -> Iterator[Engine]:
    """The empty database that a demo is given; fails afterwards when anybody is still connected to it."""
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


def command(*arguments: str, warnings: str = "error") -> list[str]:
    return [sys.executable, "-W", warnings, "-m", "examples.documents", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def address(engine: Engine) -> str:
    return f"--database-url={engine.url.render_as_string(hide_password=False)}"


def rows(engine: Engine, sql: str) -> Sequence[Any]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]


def number(engine: Engine, sql: str) -> int:
    ((found,),) = rows(engine, sql)
    return int(found)


@pytest.mark.once
@pytest.mark.slow
def test_the_whole_story_on_a_given_database(target: Engine) -> None:
    """Every document of this Python ends as one embedding, although a runner is killed, and what is printed is so."""
    done = run(address(target))
    assert done.returncode == 0, done.stdout + done.stderr
    documents = number(target, "SELECT count(*) FROM documents")
    assert documents > 50
    assert number(target, "SELECT count(*) FROM embeddings") == documents
    assert number(target, "SELECT count(DISTINCT document_id) FROM embeddings") == documents
    assert rows(target, "SELECT status, count(*) FROM jobqueue_jobs GROUP BY status") == [("done", documents)]
    failures = (
        "SELECT count(DISTINCT id) FROM jobqueue_jobs, jsonb_array_elements(errors) AS entry"
        " WHERE entry->>'error' LIKE '%{}%'"
    )
    lost = number(target, failures.format("runner runner-1 was lost"))
    assert lost >= 1
    assert f"What it still holds, until the lease is over: runner-1 {lost}\n" in done.stdout
    unavailable = number(target, failures.format("503 Service Unavailable"))
    assert unavailable >= 1
    assert f"The model service was out of order for {unavailable} of the documents" in done.stdout
    assert number(target, failures.format("MalformedDocumentError")) == 1
    attempts = number(target, "SELECT sum(attempts) FROM jobqueue_jobs")
    assert f"Attempts that it took: {attempts}\n" in done.stdout
    assert f"Embeddings: {documents}\n" in done.stdout
    assert "Documents and jobs that it leaves: 0 0\n" in done.stdout
    assert "Enqueued(id=2, outcome='existing')" in done.stdout
    assert re.search(r"getopt|argparse|optparse", done.stdout.partition("cosine and title")[2])
    assert not {"\x1b", "\r"} & set(done.stdout), "a file gets plain lines"


@pytest.mark.slow
def test_the_story_with_a_folder(target: Engine, notes: Path) -> None:
    """A folder's texts are read whatever their encoding; one without words stays dead, is told, and fails nothing."""
    done = run(address(target), "--search", "krakens of the sea", str(notes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(target, "SELECT title FROM documents ORDER BY title") == [
        ("copy of plan",),
        ("kraken",),
        ("optparse.py",),
        ("page",),
        ("silent",),
    ]
    assert rows(target, "SELECT reason FROM jobqueue_jobs WHERE status <> 'done'") == [
        ("discarded: no retry after MalformedDocumentError",)
    ]
    told = "The model service was out of order" in done.stdout
    assert told == bool(rows(target, "SELECT FROM jobqueue_jobs WHERE errors::text LIKE '%503 Service%'"))
    assert "1 of the documents hold no text; their jobs stay dead, with the reason." in done.stdout
    assert re.search(r"cosine and title of the nearest\n +0\.\d+  kraken \(deep/kraken\.md\)\n", done.stdout)


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(target: Engine, notes: Path, number: signal.Signals) -> None:
    """Ctrl-C in a terminal and a plain SIGTERM both end the runner too; its connections would fail the fixture."""
    process = subprocess.Popen(
        # A signal may come between the birth of a connection and its owner: psycopg warns, and the process ends anyway.
        command(address(target), str(notes), warnings="ignore::ResourceWarning"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        shown = ""
        for line in process.stdout:
            shown += line
            if "Runner 2 does the rest" in line:  # it is starting
                break
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        shown += process.stdout.read()
        assert process.wait(PATIENCE) == 128 + number, shown
    assert f"Stopped by {number.name}; the runner is gone, what was stored stays in the database." in shown
    assert "Traceback" not in shown
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.once
@pytest.mark.slow
def test_even_a_kill_leaves_nothing_behind(target: Engine, notes: Path, tmp_path: Path) -> None:
    """`kill -9` asks nobody: the runner would go on for ever; its connections would fail the fixture."""
    process = subprocess.Popen(
        command(address(target), str(notes)),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Runner 2 does the rest" in line:
                break
        assert list(tmp_path.glob("documents-*"))
        process.kill()
    wait_until(lambda: not list(tmp_path.glob("documents-*")), what="the folder is removed")
    fail_on_connections(target.url.render_as_string(hide_password=False))


@pytest.mark.once
def test_what_is_left_is_taken_away(tmp_path: Path) -> None:
    """Runners that still run are killed and the folder goes; one that ended before is not looked for."""
    folder = tmp_path / "documents-x"
    folder.mkdir()
    (folder / "runner.log").touch()
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleep) as left, subprocess.Popen(sleep) as ended:
        take_away(folder, [f"+{left.pid}\n", f"+{ended.pid}\n", f"-{ended.pid}\n"])
        assert left.wait(PATIENCE) == -signal.SIGKILL
        assert ended.poll() is None
        ended.kill()
    assert not folder.exists()


@pytest.mark.once
@pytest.mark.slow
def test_a_private_server_is_gone_afterwards(short_folder: Path) -> None:
    """Without a URL the demo starts a server of its own, and removes it when a step fails as well."""
    environment = {**os.environ, "SA_JOBQUEUE_SCHEMA": "elsewhere", "TMPDIR": str(short_folder)}
    environment.pop("SA_JOBQUEUE_TEST_DATABASE_URL", None)
    done = subprocess.run(command(), cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILED: unset SA_JOBQUEUE_SCHEMA" in done.stderr
    assert "private" in done.stdout
    assert not list(short_folder.iterdir())


def test_a_database_with_tables_is_refused(target: Engine) -> None:
    """The demo counts everything that it finds, so that it touches no database which holds something."""
    with target.begin() as connection:
        connection.execute(text("CREATE TABLE precious (id int)"))
    done = run(address(target))
    assert done.returncode == 1
    assert "is not empty (precious)" in done.stderr
    assert rows(target, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("precious",)]


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([str(ROOT / "sa_jobqueue" / "cli")], "no .txt, .md, .rst or .html files"),
        (["--database-url", "mysql://me:secret@localhost/app"], "the queue needs PostgreSQL"),
        (["--database-url", "postgresql://me:secret@127.0.0.1:1/app"], "can't reach postgresql"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(arguments: list[str], message: str) -> None:
    """Mistakes end with code 1 and their cause, without a traceback and without a password."""
    done = run(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr + done.stdout


def test_a_folder_without_documents_is_told_first(tmp_path: Path) -> None:
    """The mistake is seen before anything that looks like a beginning."""
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "with anything in them below" in done.stderr


def test_the_check_fails_on_numbers_that_do_not_add_up(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """A document without embedding and job, and one that is missing, are named; the demo then ends with code 1."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO documents (title, source, media_type, sha256, content)"
                " VALUES ('t', 's', 'text/plain', 'x', 'y')"
            )
        )
    with Leftovers() as leftovers:
        scene = Scene(engine=engine, terminal=Terminal(engine), environment={}, leftovers=leftovers)
        with pytest.raises(DemoError) as raised:
            check_everything(scene, documents=2, unreadable=0)
    assert str(raised.value).splitlines() == [
        "the check found",
        "  Documents: 1, and it must be 2",
        "  Embeddings: 0, and it must be 2",
        "  Documents without exactly one embedding: 1, and it must be 0",
        "  Documents without exactly one job: 1, and it must be 0",
    ]
    assert "Attempts that it took: None" in capsys.readouterr().out


def test_the_history_is_what_the_models_say(target: Engine) -> None:
    """`alembic upgrade head` from the root of the repository, then `alembic check`, then all of it away again."""
    variables = {"DOCUMENTS_DATABASE_URL": target.url.render_as_string(hide_password=False)}

    def alembic(*words: str) -> str:
        line = ["alembic", "-c", "examples/documents/alembic.ini", *words]
        done = forked.run(line, cwd=ROOT, env={**os.environ, **variables}, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    alembic("upgrade", "head")
    assert "No new upgrade operations detected" in alembic("check")
    alembic("downgrade", "base")
    left = rows(target, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert left == [("alembic_version",)]
    assert "CREATE TABLE jobqueue_jobs" in alembic("upgrade", "head", "--sql")


def test_help_needs_no_installation(tmp_path: Path) -> None:
    """`python3 examples --help` answers before any environment is made, also to a mistaken option."""
    line = [sys.executable, "-S", str(ROOT / "examples")]
    help_ = subprocess.run([*line, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (help_.returncode, help_.stderr) == (0, "")
    assert "--database-url URL" in help_.stdout
    mistake = subprocess.run([*line, "--speed"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert mistake.returncode == 2
    assert "unrecognized arguments: --speed" in mistake.stderr
    folder = subprocess.run([*line, "no/such"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (folder.returncode, folder.stdout) == (2, "")
    assert "argument FOLDER: no/such is no folder" in folder.stderr


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["notes"],
        ["--search", "-- what?", "--database-url", "postgresql://h/d"],
        ["--search=x", "--", "-notes"],
    ],
)
def test_options_reach_the_other_process_whole(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options survive the way into the environment's Python, whose current folder is another one."""
    for name in ("notes", "-notes"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    asked = parser().parse_args(words)
    passed = as_arguments(asked)
    monkeypatch.chdir(ROOT)
    understood = parser().parse_args(passed)
    assert (understood.search, understood.database_url) == (asked.search, asked.database_url)
    assert understood.folder == (None if asked.folder is None else tmp_path / asked.folder)
