"""Runner processes for crash points: forked in some milliseconds, killed, stopped and continued for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.runners import ROOT
from tests.support.waiting import PATIENCE


class Nursery:
    """Where runner processes come from. Belongs to one thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash_points._nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def start(
        self, name: str, proxied: str, direct: str, log: Path, *, lease: float, mutant: str | None
    ) -> Child:
        settings = {
            "name": name,
            "proxied": proxied,
            "direct": direct,
            "log": str(log),
            "lease": lease,
            "mutant": mutant,
        }
        return Child(self, self.ask({"start": settings}), log)

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        with self._process as process:
            if process.stdin is not None:
                process.stdin.close()


class Child:
    """One runner process, which does not outlive the block."""

    def __init__(self, nursery: Nursery, pid: int, log: Path) -> None:
        self._nursery = nursery
        self._pid = pid
        self.log = log
        self.code: int | None = None

    def send(self, number: signal.Signals) -> None:
        if self.code is None:
            os.kill(self._pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait(PATIENCE)

    def wait(self, seconds: float) -> int | None:
        """The exit code, None when it still runs after so many seconds."""
        if self.code is None:
            self.code = self._nursery.ask({"wait": self._pid, "seconds": seconds})
        return self.code

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self.kill()
