"""Finding a registry by its name, and saying what is wrong when it isn't there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sa_jobqueue.loading import RegistryNotFoundError, load_registry

APP = """
from sa_jobqueue.registry import Registry
class holder: pass
jobs = holder.jobs = Registry()
empty = Registry()
text = "no registry"
@jobs.handler("document.embed", queue="ai")
def embed(): pass
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Write a module into an importable folder; everything imported from there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, source: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["jobs_app:jobs", "jobs_app:holder.jobs", "pkg.jobs_app:jobs"])
def test_a_registry_is_found(target: str, write: Callable[[str, str], None]) -> None:
    """In a module or package, also as an attribute of something else."""
    write("jobs_app.py", APP)
    write("pkg/__init__.py", "")
    write("pkg/jobs_app.py", APP)
    assert load_registry(target).kinds == ("document.embed",)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("jobs_app", r"'jobs_app' names no registry: write jobs_app:empty or jobs_app:jobs"),
        ("jobs_app:", r"names no registry: write"),
        ("jobs_app:jbos", r"jobs_app has no 'jbos', did you mean 'jobs'\?"),
        ("jobs_app:something", r"jobs_app has no 'something': write jobs_app:empty or jobs_app:jobs"),
        ("jobs_app:holder.x", r"has no 'holder.x'"),
        ("jobs_app:text", r"jobs_app:text is a str, not a Registry: write"),
        (
            "jobs_app:empty",
            r"jobs_app:empty has no handlers: import the modules that register them in jobs_app",
        ),
        (
            "jobs_ap:jobs",
            r"there is no module 'jobs_ap' in /.*, nor is it installed, did you mean 'jobs_app'\?",
        ),
        (
            "zzzzzzzz:jobs",
            r"there is no module 'zzzzzzzz' in /.*: start it in the folder that holds the application",
        ),
        ("pkg.jobs_ap:jobs", r"there is no module 'pkg.jobs_ap', did you mean 'pkg.jobs_app'"),
        ("pkg.zzzzzzzz:jobs", r"there is no module 'pkg.zzzzzzzz' in /.*pkg$"),
        ("jobs_app.sub:jobs", r"there is no module 'jobs_app.sub' in jobs_app$"),
        ("jobs_app.py:jobs", r"expected module:registry, as in myapp.jobs:jobs"),
        ("./jobs_app:jobs", r"expected module:registry"),
        (":jobs", r"expected module:registry"),
        ("", r"expected module:registry"),
        ("..jobs_app:jobs", r"expected module:registry"),
        ("bare:jobs", r"there is no Registry in bare, make one with jobs = Registry\(\)"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    target: str, message: str, write: Callable[[str, str], None]
) -> None:
    """The message names the nearest thing that would have worked."""
    write("jobs_app.py", APP)
    write("bare.py", "")
    write("pkg/__init__.py", "")
    write("pkg/jobs_app.py", APP)
    with pytest.raises(RegistryNotFoundError, match=message):
        load_registry(target)


@pytest.mark.parametrize("name", ["randm", "sqlalchmy", "alembik"])
def test_other_peoples_modules_are_not_suggested(name: str, write: Callable[[str, str], None]) -> None:
    """The standard library and installed packages hold nobody's registry; the folder that was searched is named."""
    write("jobs_app.py", APP)
    with pytest.raises(RegistryNotFoundError) as raised:
        load_registry(f"{name}:jobs")
    assert "did you mean" not in str(raised.value)
    assert f"there is no module {name!r} in {Path.cwd()}, nor is it installed" in str(raised.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import not_installed_here",
            r"(?s)importing broken failed\nModuleNotFoundError: .*'not_installed_here'",
        ),
        ("1 / 0", r"(?s)importing broken failed\nZeroDivisionError: division by zero\n.*broken\.py:1"),
        ("def", r"(?s)importing broken failed\nSyntaxError"),
        ("raise SystemExit(0)", r"(?s)importing broken failed\nSystemExit: 0"),
    ],
)
def test_a_module_that_fails_is_not_called_missing(
    source: str, message: str, write: Callable[[str, str], None]
) -> None:
    """The cause is shown with its place; a module that exits doesn't end the command with its own code."""
    write("broken.py", source)
    with pytest.raises(RegistryNotFoundError, match=message):
        load_registry("broken:jobs")
