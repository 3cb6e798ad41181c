"""The folder of a demo, and what happens to it and to the runners when the demo is killed (`kill -9`).

Run as a script this is a process of its own, that reads the numbers of runners from a pipe. When the pipe ends, however
the demo ended, it kills the runners that are left and removes the folder. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self


class Leftovers:
    """A folder for logs, and runners, that are gone after the `with` block or with the process that entered it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="documents-"))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
        )

    def add(self, pid: int) -> None:
        """From now on this process may not outlive ours."""
        self._tell(f"+{pid}")

    def remove(self, pid: int) -> None:
        """It has ended; its number may soon be another's."""
        self._tell(f"-{pid}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def take_away(folder: Path, lines: Iterable[str]) -> None:
    """Listen until the demo is gone, then kill what it left and remove the folder."""
    running: set[int] = set()
    for line in lines:
        pid = int(line[1:])
        if line[0] == "+":
            running.add(pid)
        else:
            running.discard(pid)
    for pid in running:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    take_away(Path(sys.argv[1]), sys.stdin)
