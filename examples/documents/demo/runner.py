"""A runner in a process of its own, as in production, that the demo can kill."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.trouble import DemoError

ROOT = Path(__file__).resolve().parents[3]
CONCURRENCY = 8
#: Short times, for people who watch; all but the queue have defaults.
OPTIONS = (
    *("--queues", f"ai:{CONCURRENCY}"),
    *("--lease", "2s"),
    *("--rescue-interval", "500ms"),
    *("--poll-interval", "200ms"),
    *("--grace", "5s"),
)


class RunnerProcess:
    """`python -m sa_jobqueue run ...`; leaving the `with` block ends it, whatever happened inside."""

    def __init__(self, name: str, *, environment: Mapping[str, str], leftovers: Leftovers) -> None:
        self.name = name
        self._leftovers = leftovers
        command = (
            "-m",
            "sa_jobqueue",
            "run",
            "examples.documents.jobs:registry",
            *OPTIONS,
            "--name",
            name,
        )
        self.shown_command = shlex.join(("python", *command))
        self._log = leftovers.folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        leftovers.add(self._process.pid)

    def check(self) -> None:
        """Raise DemoError, with the end of its log, when it isn't running any more."""
        if (code := self._process.poll()) is not None:
            raise DemoError(f"{self.name} ended with code {code}; the end of its log:\n{self.log_end()}")

    def log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-15:])

    def freeze(self) -> None:
        """SIGSTOP: it can neither finish nor give back what it holds, nor take more."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: no handler, no clean-up, no goodbye to the database."""
        self._process.kill()
        self._process.wait()
        self._leftovers.remove(self._process.pid)

    def stop(self) -> int:
        """SIGTERM, and the exit code; it is 0 when every outcome was written."""
        self._process.terminate()
        code = self._process.wait(timeout=15)
        self._leftovers.remove(self._process.pid)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
