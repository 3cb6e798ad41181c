"""The environments of the two commands: made once, never half, never somebody else's by mistake."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import bootstrap
from tests.bootstrap import (
    BootstrapError,
    ensure_environment,
    pip_advice,
    require_python,
    runs_inside,
    told_in_one_line,
)
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[project]
name = "sa-jobqueue"
[project.optional-dependencies]
binary = ["psycopg[binary]"]
asyncio = ["sqlalchemy[asyncio]"]
test = ["sa-jobqueue[asyncio, binary]", "pytest"]
lint = ["ruff"]
"""


class Installation:
    """Stands for venv and pip: notes what they were asked for."""

    def __init__(self) -> None:
        self.created: list[Path] = []
        self.installed: list[list[str]] = []
        self.failure: BaseException | None = None

    def create(self, folder: Path) -> None:
        self.created.append(folder)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)

    def run_pip(self, root: Path, folder: Path, requirements: list[str]) -> None:
        if self.failure is not None:
            raise self.failure
        self.installed.append([each.removeprefix(str(root)) for each in requirements])


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch) -> Installation:
    """No network and no waiting in these tests."""
    fake = Installation()
    monkeypatch.setattr(bootstrap, "_create", fake.create)
    monkeypatch.setattr(bootstrap, "_run_pip", fake.run_pip)
    return fake


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a small project."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


def test_a_second_start_installs_nothing(
    root: Path, installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start says what it does; every later one goes straight on."""
    python = ensure_environment(["lint"], root=root)
    assert python == root / ".venv" / "bin" / "python"
    assert installation.installed == [["[lint]"]]
    assert "creating .venv (Python 3." in capsys.readouterr().out
    assert ensure_environment(["lint"], root=root) == python
    assert (len(installation.created), len(installation.installed)) == (1, 1)
    assert capsys.readouterr().out == ""


def test_both_commands_share_one_environment(root: Path, installation: Installation) -> None:
    """Examples and tests in turn must not install again and again; what an extra contains counts as there."""
    ensure_environment(["binary"], root=root)
    ensure_environment(["test"], root=root)
    assert installation.installed == [["[binary]"], ["[asyncio,binary,test]"]]
    ensure_environment(["binary", "asyncio"], root=root)
    ensure_environment(["test"], root=root)
    assert (len(installation.created), len(installation.installed)) == (1, 2)


def test_a_changed_project_is_installed_again(root: Path, installation: Installation) -> None:
    """A new dependency in pyproject.toml reaches the environment without anybody thinking of it."""
    ensure_environment(["test"], root=root)
    (root / "pyproject.toml").write_text(PROJECT.replace('"pytest"', '"pytest", "hypothesis"'))
    ensure_environment(["lint"], root=root)
    assert installation.installed[-1] == ["[asyncio,binary,lint,test]"]
    assert len(installation.created) == 1


def test_another_python_or_constraint_makes_a_new_environment(root: Path, installation: Installation) -> None:
    """Packages of one Python don't work in another, and a constraint can't be met by adding."""
    ensure_environment(["lint"], root=root)
    stamp = root / ".venv" / "sa-jobqueue.json"
    content = json.loads(stamp.read_text())
    content["place"][1] = "3.10"
    stamp.write_text(json.dumps(content))
    ensure_environment(["lint"], root=root)
    assert len(installation.created) == 2
    ensure_environment(["lint"], root=root, constraints=["sqlalchemy<2.1"])
    assert len(installation.created) == 3
    assert installation.installed[-1] == ["[lint]", "sqlalchemy<2.1"]


@pytest.mark.parametrize("failure", [BootstrapError("no network"), KeyboardInterrupt()])
def test_an_installation_that_broke_off_is_begun_anew(
    root: Path, installation: Installation, failure: BaseException
) -> None:
    """Half an environment fails later, and nobody understands why."""
    installation.failure = failure
    with pytest.raises(type(failure)):
        ensure_environment(["lint"], root=root)
    installation.failure = None
    (root / ".venv" / "half").touch()
    ensure_environment(["lint"], root=root)
    assert len(installation.created) == 2
    assert not (root / ".venv" / "half").exists()


@pytest.mark.parametrize("broken", [False, True])
def test_an_environment_of_somebody_else_is_never_removed(
    root: Path, installation: Installation, broken: bool
) -> None:
    """Many people have a .venv of their own; it is completed, also when pip failed in it before."""
    installation.create(root / ".venv")
    installation.created.clear()
    (root / ".venv" / "mine").touch()
    if broken:
        installation.failure = BootstrapError("no network")
        with pytest.raises(BootstrapError):
            ensure_environment(["lint"], root=root)
        installation.failure = None
    ensure_environment(["lint"], root=root)
    (root / "pyproject.toml").write_text(PROJECT + "# changed\n")
    ensure_environment(["lint"], root=root)
    assert installation.created == []
    assert (root / ".venv" / "mine").exists()


def test_two_at_once_install_once(
    root: Path,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second waits for the first, says so, and finds everything there."""
    first_is_in, go_on = threading.Event(), threading.Event()

    def slow_pip(root: Path, folder: Path, requirements: list[str]) -> None:
        first_is_in.set()
        assert go_on.wait(10)
        installation.run_pip(root, folder, requirements)

    monkeypatch.setattr(bootstrap, "_run_pip", slow_pip)
    threads = [
        threading.Thread(target=ensure_environment, args=(["lint"],), kwargs={"root": root}) for _ in "ab"
    ]
    threads[0].start()
    assert first_is_in.wait(10)
    threads[1].start()
    said: list[str] = []
    wait_until(lambda: said.append(capsys.readouterr().out) or "waiting for another process" in "".join(said))
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(installation.installed) == 1


def test_a_repository_that_is_not_writable_is_explained(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's checkout: the message says where to go on."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BootstrapError, match=r"is not writable for the user .*\n.*cp -r"):
        ensure_environment(["lint"], root=root)


@pytest.mark.parametrize(
    ("output", "cure"),
    [
        ("NewConnectionError: Temporary failure in name resolution", "PIP_NO_INDEX=1"),
        ("ERROR: No matching distribution found for hatchling", "PIP_NO_INDEX=1"),
        ("WARNING: '/x/pip' is not writable\nERROR: No matching distribution found for x", "PIP_NO_INDEX=1"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("/x/bin/python: No module named pip", "has no pip"),
        ("OSError: [Errno 13] Permission denied: '/x'", "not writable"),
    ],
)
def test_pips_failure_is_shown_with_a_cure(output: str, cure: str) -> None:
    """The last lines of pip say what happened; ours say what to do."""
    message = pip_advice("first line\n" + "more\n" * 30 + output, Path("/r/.venv/install.log"))
    assert output.splitlines()[-1] in message
    assert cure in message
    assert "first line" not in message


def test_warnings_of_pip_are_no_errors(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONWARNINGS=error is for the project's code; pip warns about whatever it likes and would stop."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    seen: list[dict[str, str]] = []

    def call(command: list[str], *, env: dict[str, str], **_: object) -> int:
        seen.append(env)
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    bootstrap._run_pip(root, root, ["."])
    (environment,) = seen
    assert "PYTHONWARNINGS" not in environment
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("failure", "code"), [(KeyboardInterrupt(), 130), (BootstrapError("no network"), "no network")]
)
def test_a_start_that_ends_early_takes_one_line(
    root: Path,
    installation: Installation,
    capsys: pytest.CaptureFixture[str],
    failure: BaseException,
    code: int | str,
) -> None:
    """Ctrl-C while packages are fetched, or no network: no traceback, and the code that shells expect."""
    installation.failure = failure
    with pytest.raises(SystemExit) as ended, told_in_one_line():
        ensure_environment(["lint"], root=root)
    assert ended.value.code == code
    assert ended.value.__suppress_context__
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("stopped; the next start does it anew" if code == 130 else "failed")


def test_a_python_without_venv_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's python3 comes without ensurepip; the message names the package to install."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ensurepip is not available'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(python))
    with pytest.raises(
        BootstrapError, match=r"ensurepip is not available\n(.|\n)*apt-get install python3\.\d+-venv"
    ):
        bootstrap._create(tmp_path / ".venv")


def test_an_old_python_without_a_newer_one_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence instead of a syntax error."""
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is needed"):
        require_python(["tests"])


def test_an_old_python_goes_on_in_a_newer_one_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names on PATH may be empty shells of a version manager: the first that runs is taken."""
    for name, body in (("python3.14", "exit 127"), ("python3.12", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    taken: list[list[str]] = []

    def replace(command: list[str]) -> None:
        taken.append(command)
        raise SystemExit

    monkeypatch.setattr(bootstrap, "replace_process", replace)
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        require_python(["tests", "-x"])
    assert taken == [[str(tmp_path / "python3.12"), "tests", "-x"]]


@pytest.mark.parametrize("path", ["tests/bootstrap.py", "tests/__main__.py", "examples/__main__.py"])
def test_old_pythons_can_read_what_runs_first(path: str) -> None:
    """Otherwise an old Python shows a syntax error instead of our message."""
    ast.parse((ROOT / path).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_the_second_start_is_in_the_environment() -> None:
    """This run's own Python is recognised, so that it is not started again and again."""
    assert runs_inside(Path(sys.prefix) / "bin" / "python")
    assert not runs_inside(ROOT / "nowhere" / "bin" / "python")


@pytest.mark.parametrize("folder", ["tests", "examples"])
def test_what_runs_first_needs_the_standard_library_only(folder: str) -> None:
    """Nothing is installed yet when the two commands begin."""
    script = f"import runpy, sys; sys.argv[0] = {folder!r}; runpy.run_path({folder!r} + '/__main__.py', run_name='first')"
    answer = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[0] = '.'; {script}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
