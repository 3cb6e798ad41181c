"""The runner processes: started again whenever they end, as a service manager does, and what they log is counted."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

from sa_jobqueue.loop import LONGEST_BACKOFF
from sa_jobqueue.runner import RunnerSettings
from tests.chaos import app
from tests.support.alive import CONNECTED
from tests.support.runners import ROOT, RunnerProcess

#: Seconds: the lease, and how long a runner with such a lease waits for the answer to a statement.
LEASE = 2.0
DEADLINE = RunnerSettings(lease=timedelta(seconds=LEASE)).statement_deadline.total_seconds()
#: The longest pause between two tries of a loop, and how many loops there are that may fail.
BACKOFF, LOOPS = LONGEST_BACKOFF, len(CONNECTED)
OPTIONS = (
    *("--lease", f"{LEASE:g}s", "--poll-interval", "200ms", "--rescue-interval", "200ms", "--grace", "5s"),
    *("--log-level", "warning"),
)
#: What a runner ends with that can't reach the database at its start, and one that had to hand something back.
UNREACHABLE, HANDED_BACK = 3, 7
_RECORD = re.compile(r"\d\d:\d\d:\d\d ")
_OF_A_JOB = re.compile(r"\bjob \d+\b")
_SKEWED = os.pathsep.join([str(Path(__file__).parents[1] / "apps" / "skewed"), str(ROOT)])


@dataclass(frozen=True, slots=True)
class Lines:
    """How much a runner has logged: about single jobs, and about itself."""

    jobs: int = 0
    itself: int = 0

    def __sub__(self, other: Lines) -> Lines:
        return Lines(self.jobs - other.jobs, self.itself - other.itself)


def count_lines(log: str) -> Lines:
    """Records, not the lines of their details."""
    lines = [line for line in log.splitlines() if _RECORD.match(line)]
    about_jobs = sum(bool(_OF_A_JOB.search(line)) for line in lines)
    return Lines(about_jobs, len(lines) - about_jobs)


@dataclass(eq=False)
class Member:
    """One runner, by name: a process after the other."""

    name: str
    queues: str
    url: str
    direct_url: str
    skew: int = 0
    #: How its processes have ended that nobody told to, by exit code, and the last words of those that should not have.
    ends: Counter[int] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    _earlier: str = ""
    _leaving: bool = False
    _closed: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        environment = {app.URL_VARIABLE: self.direct_url}
        if self.skew:
            environment |= {"PYTHONPATH": _SKEWED, "SA_JOBQUEUE_TEST_SKEW": str(self.skew)}
        options = ("--queues", self.queues, "--name", self.name, *OPTIONS)
        with self._lock:
            self._process = RunnerProcess("tests.chaos.app:jobs", self.url, *options, env=environment)

    def kill(self) -> None:
        """SIGKILL, and another process in its place at once."""
        with self._lock:
            self._process.kill()
            self._replace()

    def send(self, number: signal.Signals) -> None:
        with self._lock:
            if not self._process.ended:
                self._process.send(number)

    def deploy(self) -> None:
        """SIGTERM, the end, and another process in its place."""
        with self._lock:
            self._leaving = True
            self.send(signal.SIGTERM)
        self._process.wait()
        self._leaving = False
        self.look()

    def look(self) -> None:
        """Start it again when it has ended."""
        with self._lock:
            if not self._process.ended or self._leaving:
                return
            self._note_end()
            self._replace()

    def wait(self) -> None:
        """Until it has ended, told to."""
        with self._lock:
            self._note_end()

    def close(self) -> None:
        """Not later than this it ends; what it has said stays."""
        with self._lock:
            self._earlier = self.log
            self._process.close()
            self._closed = True

    @property
    def log(self) -> str:
        """All that its processes have said."""
        with self._lock:
            return self._earlier if self._closed else self._earlier + self._process.text

    def _note_end(self) -> None:
        code = self._process.wait()
        self.ends[code] += 1
        if code not in (0, UNREACHABLE, HANDED_BACK):
            self.surprises.append(f"{self.name} ended with {code}:\n{self._process.text[-2000:]}")

    def _replace(self) -> None:
        self._earlier += self._process.text
        self._process.close()
        self.start()


class Fleet:
    """All members, watched over."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor")

    @contextmanager
    def running(self) -> Iterator[None]:
        for member in self.members:
            member.start()
        self._supervisor.start()
        try:
            yield
            self._end_supervision()
            for member in self.members:
                member.send(signal.SIGTERM)
            for member in self.members:
                member.wait()
        finally:
            self._end_supervision()
            for member in self.members:
                member.close()

    @property
    def names(self) -> set[str]:
        return {member.name for member in self.members}

    def one(self, chance: Random) -> Member:
        return chance.choice(self.members)

    def lines(self) -> Mapping[str, Lines]:
        return {member.name: count_lines(member.log) for member in self.members}

    def _supervise(self) -> None:
        while not self._over.wait(0.05):
            for member in self.members:
                member.look()

    def _end_supervision(self) -> None:
        self._over.set()
        self._supervisor.join()


def members(url: str, proxied_url: str) -> list[Member]:
    """Threads and an event loop, clocks ahead and behind, one behind the proxy."""
    return [
        Member("plain", f"{app.THREADS}:8", url, url),
        Member("ahead", f"{app.THREADS}:4,{app.LOOP}:10", url, url, skew=600),
        Member("behind", f"{app.LOOP}:20", url, url, skew=-600),
        Member("proxied", f"{app.THREADS}:4,{app.LOOP}:10", proxied_url, url),
    ]
