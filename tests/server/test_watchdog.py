"""However the owner of a server ends, the server ends too; and nobody else's folder is ever removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sa_jobqueue.testing import _watchdog
from sa_jobqueue.testing.postgres import SOURCE_VARIABLE, URL_VARIABLE
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
START = "from sa_jobqueue.testing import start_postgres; server = start_postgres(settings={'fsync': 'off'})"
SLEEP = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]


@contextmanager
def owner(folder: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """A process that owns a server below the folder."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {URL_VARIABLE, SOURCE_VARIABLE}
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**environment, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def noted_server(folder: Path) -> int | None:
    """The number of the server process below the folder, once it is written down."""
    for note in folder.glob(f"{_watchdog.PREFIX}*/server"):
        return int(note.read_text().split()[0])
    return None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_leaves_no_server_and_no_folder(short_folder: Path, how: signal.Signals) -> None:
    """A plain child would run on for ever, one for each killed test run."""
    with owner(short_folder, f"{START}; print(flush=True); input()") as process:
        assert process.stdout is not None
        process.stdout.readline()
        server = wait_until(lambda: noted_server(short_folder))
        assert _watchdog.process_start(server) is not None
        process.send_signal(how)
        process.wait()
        wait_until(lambda: _watchdog.process_start(server) is None)
        wait_until(lambda: not list(short_folder.iterdir()))


def test_an_owner_killed_while_the_cluster_is_made_leaves_nothing(short_folder: Path) -> None:
    """The watchdog is there before the first file of the cluster."""
    with owner(short_folder, START) as process:
        wait_until(lambda: noted_server(short_folder))
        process.kill()
        process.wait()
        wait_until(lambda: not list(short_folder.iterdir()))


def test_a_forked_child_does_not_keep_the_server(short_folder: Path) -> None:
    """A child that was forked holds the watchdog's pipe open; the owner's death counts, not the pipe."""
    script = (
        f"import os, signal; {START}; child = os.fork()\nif child: print(child, flush=True)\nsignal.pause()"
    )
    with owner(short_folder, script) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            wait_until(lambda: not list(short_folder.iterdir()))
            assert _watchdog.process_start(child) is not None
        finally:
            os.kill(child, signal.SIGKILL)


def test_the_sweep_removes_what_a_dead_owner_left(short_folder: Path) -> None:
    """When owner and watchdog die together, the next start takes the server and its folder away."""
    folder = short_folder / f"{_watchdog.PREFIX}stale"
    folder.mkdir()
    with sleeper() as server:
        with sleeper() as dead:
            _watchdog.record(folder, "owner", dead.pid)
        _watchdog.record(folder, "server", server.pid)
        _watchdog.sweep(short_folder)
        assert server.wait(timeout=10) == -signal.SIGQUIT
    assert not folder.exists()


def test_the_sweep_spares_living_owners_and_whatever_it_does_not_know(short_folder: Path) -> None:
    """Removing a running server's data, or somebody's files, would be far worse than leaving a folder."""
    names = ("living", "unborn", "container", "other")
    folders = {name: short_folder / f"{_watchdog.PREFIX}{name}" for name in names}
    for folder in folders.values():
        folder.mkdir()
    _watchdog.record(folders["living"], "owner", os.getpid())
    (folders["container"] / "owner").write_text("1 1 pid:[of-another-space]\n")
    (folders["other"] / "owner").write_text("notes of somebody\n")
    link = short_folder / f"{_watchdog.PREFIX}link"
    link.symlink_to(folders["living"])
    _watchdog.sweep(short_folder)
    assert all(folder.exists() for folder in (*folders.values(), link))


@pytest.mark.needs("root")
def test_the_sweep_spares_folders_of_other_users(short_folder: Path) -> None:
    """A folder that somebody else made could name any process to kill."""
    folder = short_folder / f"{_watchdog.PREFIX}foreign"
    folder.mkdir()
    with sleeper() as dead:
        _watchdog.record(folder, "owner", dead.pid)
    os.chown(folder, 65534, 65534)
    _watchdog.sweep(short_folder)
    assert folder.exists()


def test_a_number_given_again_is_not_the_server(short_folder: Path) -> None:
    """After a long time the number in a note may belong to another process, which must live."""
    folder = short_folder / f"{_watchdog.PREFIX}reused"
    folder.mkdir()
    with sleeper() as innocent:
        _watchdog.record(folder, "server", innocent.pid)
        pid, start, space = (folder / "server").read_text().split()
        (folder / "server").write_text(f"{pid} {start}0 {space}\n")
        _watchdog.remove_server(folder)
        assert innocent.poll() is None
    assert not folder.exists()
