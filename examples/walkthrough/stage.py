"""Where a story happens: its database, the processes that it starts, and the requests that it makes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import create_engine, text

from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.place import Place, migrate
from examples.documents.demo.runner import ROOT
from examples.documents.demo.trouble import DemoError, expect

_COUNTS = text("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM jobqueue_jobs)")
#: Seconds that anything may take before it counts as stuck.
PATIENCE = 60.0


class Stage:
    """Says what is done and what came of it; raises DemoError at the first thing that is not as it must be."""

    def __init__(self, place: Place, leftovers: Leftovers) -> None:
        self.place = place
        self._leftovers = leftovers
        self._engine = create_engine(place.url)

    def say(self, line: str) -> None:
        print(line, flush=True)

    def migrate(self, folder: str) -> None:
        command = ("alembic", "-c", f"{folder}/alembic.ini", "upgrade", "head")
        self.say(f"$ {' '.join(command)}")
        migrate(self.place, command)

    def run(self, *command: str) -> str:
        """Run a module to its end, as `python -m` does, and return what it printed. It has to end with 0."""
        self.say(f"$ {_shown(command)}")
        with self._process(command) as process:
            output, log = _end_of(process)
        expect(process.returncode == 0, f"{_shown(command)} ended with {process.returncode}\n{log}")
        return output

    @contextmanager
    def server(self, *command: str, **settings: str) -> Iterator[httpx.Client]:
        """A server on a free port for the time of the block, and who makes requests to it. Its log is shown on failure."""
        self.say(f"$ {''.join(f'{name}={value} ' for name, value in settings.items())}{_shown(command)}")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with (
                self._process((*command, "--fd", str(listening.fileno())), listening, **settings) as process,
                httpx.Client(base_url=address, timeout=PATIENCE) as client,
            ):
                # It listens already, so that requests wait for the application; if that dies, they need not wait.
                listening.close()
                try:
                    yield client
                except DemoError as error:
                    process.terminate()
                    raise DemoError(f"{error}\n{_end_of(process)[1]}") from None
                process.terminate()
                _, log = _end_of(process)
        expect(
            process.returncode in (0, -signal.SIGTERM),
            f"{_shown(command)} was told to stop, and ended with {process.returncode}\n{log}",
        )

    def ask(self, client: httpx.Client, method: str, path: str, *, expected: int, **words: Any) -> Any:
        """One request, shown with its answer; the JSON of the answer, or its text."""
        self.say(f"{method} {path}{' ' + json.dumps(words) if words else ''}")
        try:
            answer = client.request(method, path, json=words or None)
        except httpx.HTTPError as error:
            raise DemoError(f"{method} {path}: no answer ({error!r})") from None
        body = answer.json() if answer.headers["content-type"] == "application/json" else answer.reason_phrase
        self.say(f"    {answer.status_code} {json.dumps(body)}")
        expect(answer.status_code == expected, f"{method} {path} was answered by {answer.status_code}")
        return body

    def count(self, *, orders: int, jobs: int) -> None:
        """Say how many rows are committed; they have to be as many as that."""
        with self._engine.connect() as connection:
            found = tuple(connection.execute(_COUNTS).one())
        self.say(f"    committed orders: {found[0]}, jobs: {found[1]}")
        expect(found == (orders, jobs), f"there should be {orders} orders and {jobs} jobs")

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _process(
        self, command: Sequence[str], *inherited: socket.socket, **settings: str
    ) -> Iterator[subprocess.Popen[str]]:
        """`python -m COMMAND`, that doesn't outlive the block, nor us."""
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, **self.place.environment, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[one.fileno() for one in inherited],
        )
        self._leftovers.add(process.pid)
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
        self._leftovers.remove(process.pid)


def _end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it has printed when it has ended, and the end of its log."""
    try:
        output, log = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise DemoError(f"{process.args!r} has not ended within {PATIENCE:g} s") from None
    return output, log[-2000:]


def _shown(command: Sequence[str]) -> str:
    """As it is typed where the project is installed."""
    program, *words = command
    typed = {"sa_jobqueue": "sa-jobqueue", "uvicorn": "uvicorn"}.get(program, f"python -m {program}")
    return " ".join((typed, *words))
