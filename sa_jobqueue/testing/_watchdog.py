"""Takes a private server away when the process that owns it is gone, even after `kill -9`.

Run as a script (`python -I -S _watchdog.py FOLDER OWNER_PID`) it waits until its standard input ends or its owner
dies, then kills the server of that folder and removes the folder. The owner's own clean-up and the sweep of stale
folders use the same functions. Only the standard library is imported: the script runs without site-packages.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

PREFIX = "sajq-"
ABANDONED_AFTER = 3600.0
_PROC = Path("/proc")


def process_start(pid: int) -> str | None:
    """When the process started, as a word to compare; None when there is none, or only its zombie.

    A number alone does not name a process: numbers are given again.
    """
    if (_PROC / "self" / "stat").exists():
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[19]
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
    ).stdout.split()
    return None if not answer or answer[0].startswith("Z") else "-".join(answer[1:])


def _process_space() -> str:
    """Which numbering of processes we see: a folder shared with a container holds numbers of another one."""
    try:
        return str((_PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        return "-"


def record(folder: Path, role: str, pid: int) -> None:
    """Write down who plays a role ("owner", "server") for this folder; replaces the former note at once or not at all."""
    draft = folder / f"{role}.new"
    draft.write_text(f"{pid} {process_start(pid) or '-'} {_process_space()}\n")
    draft.replace(folder / role)


def _living(folder: Path, role: str) -> int | None:
    """The recorded process if it still runs. Raises LookupError when we can't know."""
    try:
        pid, start, space = (folder / role).read_text().split()
    except (OSError, ValueError):
        raise LookupError(role) from None
    if space != _process_space():
        raise LookupError(role)
    return int(pid) if process_start(int(pid)) == start else None


def remove_server(folder: Path) -> None:
    """Kill the server of the folder (no checkpoint: its data are thrown away) and remove the folder."""
    try:
        pid = _living(folder, "server")
    except LookupError:
        pid = None
    if pid is not None:
        _end(pid, signal.SIGQUIT, patience=5.0)
        _end(pid, signal.SIGKILL, patience=5.0)
    deadline = time.monotonic() + 5.0
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # the last children of a server may still be writing
        if folder.exists():
            time.sleep(0.05)


def _end(pid: int, how: signal.Signals, *, patience: float) -> None:
    start = process_start(pid)
    if start is None:
        return
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + patience
    while process_start(pid) == start and time.monotonic() < deadline:
        time.sleep(0.02)


def sweep(parent: Path) -> None:
    """Remove what owners that died together with their watchdog left behind. Never touches another user's folder."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            facts = folder.lstat()
        except OSError:
            continue
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            continue
        try:
            stale = _living(folder, "owner") is None
        except LookupError:
            # No readable note: its owner is just being born, or died being born long ago.
            stale = not (folder / "owner").exists() and time.time() - facts.st_mtime > ABANDONED_AFTER
        if stale:
            remove_server(folder)


def watch(folder: Path, owner: int) -> None:
    """Wait for the end of the owner, then remove its server. A forked child of the owner may hold the pipe open,
    so that the pipe alone is not enough: our parent's number changes when the owner dies."""
    while os.getppid() == owner:
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 1024):
            break
    remove_server(folder)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), int(sys.argv[2]))
