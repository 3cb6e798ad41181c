"""Runners for tests: one inside this process whose events are recorded, and real processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, select, text

from sa_jobqueue.events import Event
from sa_jobqueue.models import jobs
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner, RunnerSettings
from tests.support.forked import Forked, start_python
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
#: Where handlers of test applications write down what they did, in transactions of their own.
LEDGER = (
    "CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, job_id bigint, attempt int, pid int, note text, "
    "at timestamptz DEFAULT clock_timestamp())"
)


class Recorder:
    """Keeps every event, for tests that wait for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    def wait_for(self, kind: type[Any], *, count: int = 1, timeout: float = PATIENCE) -> list[Any]:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.of(kind)) >= count, timeout):
                seen = [type(event).__name__ for event in self.events]
                raise AssertionError(f"expected {count} {kind.__name__} within {timeout:g} s, saw {seen}")
        return self.of(kind)


def settings(**changes: Any) -> RunnerSettings:
    """Short times, so that a test sees what takes minutes in life."""
    defaults: dict[str, Any] = {
        "lease": timedelta(seconds=2),
        "poll_interval": timedelta(milliseconds=50),
        "rescue_interval": timedelta(milliseconds=50),
        "grace": timedelta(seconds=5),
    }
    return RunnerSettings(**(defaults | changes))


@contextmanager
def running(registry: Registry, url: str | URL, **changes: Any) -> Iterator[Recorder]:
    """A runner in this process for the time of the block."""
    recorder = Recorder()
    with Runner(registry, url, settings(**changes), subscribers=[recorder]):
        yield recorder


def drain(registry: Registry, url: str, **changes: Any) -> Recorder:
    """Run every due job now; returns when none is left."""
    recorder = Recorder()
    runner = Runner(registry, url, settings(burst=True, **changes), subscribers=[recorder])
    assert runner.run(handle_signals=False) == 0
    return recorder


class RunnerProcess:
    """`sa-jobqueue run` as an operating-system process of its own."""

    def __init__(self, target: str, url: str, *options: str, env: dict[str, str] | None = None) -> None:
        self.log = Path(tempfile.mkstemp(prefix="sajq-runner-", suffix=".log")[1])
        start = start_python if "PYTHONPATH" in (env or {}) else Forked  # which may name a sitecustomize
        with self.log.open("wb") as output:
            self._process = start(
                ["sa_jobqueue", "run", target, *options],
                cwd=ROOT,
                env={**os.environ, "SA_JOBQUEUE_DATABASE_URL": url, **(env or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def insist(self, number: signal.Signals) -> int:
        """Send a second signal, again until it is taken for one, and return the exit code."""

        def ended() -> bool:
            if not self.ended:
                self.send(number)
            return self.ended

        wait_until(ended, what="the end by a second signal")
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def wait(self, timeout: float = PATIENCE) -> int:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the runner goes on; its log:\n{self.text}") from None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def text(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        self.log.unlink()


@contextmanager
def process(
    target: str, url: str, *options: str, env: dict[str, str] | None = None
) -> Iterator[RunnerProcess]:
    """A runner process that does not outlive the block."""
    short = ("--lease", "1s", "--poll-interval", "50ms", "--rescue-interval", "100ms", "--grace", "5s")
    runner = RunnerProcess(target, url, *short, *options, env=env)
    try:
        yield runner
    finally:
        runner.close()


def add(connection: Connection, kind: str, payload: str = "{}", **columns: Any) -> int:
    """Insert a job past the library, as any SQL client may; returns its id."""
    columns = {"kind": kind, "payload": payload, **columns}
    names = ", ".join(columns)
    values = ", ".join(f"CAST(:{name} AS jsonb)" if name == "payload" else f":{name}" for name in columns)
    statement = text(f"INSERT INTO jobqueue_jobs ({names}) VALUES ({values}) RETURNING id")
    job_id: int = connection.execute(statement, columns).scalar_one()
    return job_id


def row(engine: Engine, job_id: int) -> Any:
    """The whole row as it is now, but for its payload, which may be unreadable."""
    columns = [column for column in jobs.c if column is not jobs.c.payload]
    with engine.connect() as connection:
        return connection.execute(select(*columns).where(jobs.c.id == job_id)).one()


def wait_for_row(engine: Engine, job_id: int, check: Callable[[Any], bool], timeout: float = PATIENCE) -> Any:
    """The row, once the check holds."""
    wait_until(lambda: check(row(engine, job_id)), timeout=timeout, what=f"job {job_id}")
    return row(engine, job_id)


def ledger(engine: Engine) -> Sequence[Any]:
    """What the handlers wrote down, in order."""
    with engine.connect() as connection:
        return connection.execute(text("SELECT * FROM ledger ORDER BY id")).all()
