"""`python3 examples fastapi`, `flask` and `script` as people run them: a process, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

import examples.__main__ as launcher
from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.place import Place
from examples.documents.demo.trouble import DemoError
from examples.script.orders import Base
from examples.walkthrough.__main__ import STORIES
from examples.walkthrough.stage import Stage

# On the other SQLAlchemy the applications themselves are tested: processes and what they print are the same there.
pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parents[2]
SHOWN = {
    "fastapi": [
        '    409 {"detail": "not that many in stock"}\n    committed orders: 0, jobs: 0\n',
        '    202 {"order_id": 2, "job_id": 2}\n    committed orders: 1, jobs: 1\n',
        'GET /jobs/2?wait=30\n    200 {"status": "done"}\n',
        'GET /orders/2\n    200 {"quantity": 2, "receipt": "2 for ada@example.org"}\n',
        "$ sa-jobqueue run examples.fastapi_app.jobs:jobs --burst\nGET /jobs/3\n",
        'GET /orders/3\n    200 {"quantity": 3, "receipt": "3 for bob@example.org"}\n',
    ],
    "flask": [
        '    409 "CONFLICT"\n    committed orders: 0, jobs: 0\n',
        '    202 {"job_id": 2, "order_id": 2}\n    committed orders: 1, jobs: 1\n',
        'GET /orders/2\n    200 {"quantity": 2, "receipt": "2 for ada@example.org"}\n',
    ],
    "script": [
        "    after the rollback: orders: 0, jobs: 0\n    after the commit: orders: 1, jobs: 1\n",
        "    job 2: done; receipt: 2 for ada@example.org\n",
    ],
}


def run(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command without its installation, with a folder of its own for whatever is temporary."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.walkthrough", name],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_whole_story(name: str, short_folder: Path) -> None:
    """The rollback comes first, then the commit, then the answer; in few lines, without a secret, and nothing stays."""
    done = run(name, short_folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    places = [done.stdout.find(lines) for lines in SHOWN[name]]
    assert -1 not in places, done.stdout
    assert places == sorted(places)
    assert 8 <= len(done.stdout.splitlines()) <= 30
    assert "postgresql+psycopg" not in done.stdout
    assert not list(short_folder.iterdir())


@pytest.mark.once
@pytest.mark.slow
def test_what_fails_is_told_and_ends_with_1(short_folder: Path) -> None:
    """A story that can't be told to its end says why, and leaves nothing either."""
    done = run("script", short_folder, SA_JOBQUEUE_SCHEMA="elsewhere")
    assert done.returncode == 1
    assert "FAILED: unset SA_JOBQUEUE_SCHEMA" in done.stderr
    assert "Checked" not in done.stdout
    assert not list(short_folder.iterdir())


@pytest.fixture
def stage(engine: Engine) -> Iterator[Stage]:
    """A stage on a database with an application's tables and the queue's."""
    Base.metadata.create_all(engine)
    url = engine.url.render_as_string(hide_password=False)
    with Leftovers() as leftovers:
        stage = Stage(Place(url, "a test's"), leftovers)
        yield stage
        stage.close()


def test_wrong_numbers_end_it(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """What is committed is shown as it is, and nothing but the expected number goes on."""
    stage.count(orders=0, jobs=0)
    with pytest.raises(DemoError, match="there should be 1 orders and 0 jobs"):
        stage.count(orders=1, jobs=0)
    assert capsys.readouterr().out == "    committed orders: 0, jobs: 0\n" * 2


def test_a_command_that_fails_ends_it(stage: Stage) -> None:
    """The end of what it said is in the message."""
    with pytest.raises(DemoError, match=r"ended with \d+\n(?s:.*)there is no module 'examples.nowhere'"):
        stage.run("sa_jobqueue", "run", "examples.nowhere:jobs", "--burst")


def test_a_server_that_does_not_start_ends_it(stage: Stage) -> None:
    """Nobody waits for an answer that can't come, and the server's own words are in the message."""
    with (
        pytest.raises(DemoError, match=r"(?s)GET /: no answer \((?!\w*Timeout).*Could not import module"),
        stage.server("uvicorn", "examples.nowhere:app") as client,
    ):
        stage.ask(client, "GET", "/", expected=200)


@pytest.mark.parametrize(
    ("arguments", "extras", "command"),
    [
        (["flask"], ["examples"], ["examples.walkthrough", "flask"]),
        (["--search=x"], ["binary", "embedded", "asyncio"], ["examples.documents", "--search=x"]),
        (
            ["./flask"],
            ["binary", "embedded", "asyncio"],
            ["examples.documents", "--search=parse command line arguments", "--", "{folder}/flask"],
        ),
    ],
)
def test_the_launcher_chooses(
    arguments: list[str],
    extras: list[str],
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name runs its story with what that needs; a folder of such a name is one of documents when it is a path."""
    started = []
    (tmp_path / "flask").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "ensure_environment", lambda wanted: Path("python", *wanted))
    monkeypatch.setattr(launcher, "replace_process", lambda words, folder: started.append((words, folder)))
    launcher.main(arguments)
    expected = [word.format(folder=tmp_path) for word in command]
    assert started == [([str(Path("python", *extras)), "-m", *expected], ROOT)]


def test_the_launcher_knows_every_story(capsys: pytest.CaptureFixture[str]) -> None:
    """Help names each of them, and a word too many is a mistake of usage before anything is installed."""
    assert set(launcher.APPLICATIONS) == set(STORIES)
    with pytest.raises(SystemExit) as ended:
        launcher.main(["--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"python3 examples {name}" in shown for name in STORIES)
    with pytest.raises(SystemExit) as ended:
        launcher.main(["flask", "--database-url=x"])
    assert ended.value.code == 2
    assert "flask takes no arguments: --database-url=x" in capsys.readouterr().err
