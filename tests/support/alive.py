"""A runner with all its loops, and work that only gets done while every one of them is alive."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobStarted, LoopBlocked, UnknownKinds, UnservedQueues
from sa_jobqueue.loop import Loop
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import never
from sa_jobqueue.runner import QueueSettings, Runner
from tests.support.runners import Recorder, add, settings
from tests.support.waiting import PATIENCE

#: How long, in seconds, a runner may take to be whole again once its database is well.
SOON = 15.0
#: Every loop of a runner that has all of them, and those that have a connection.
LOOPS = {"dispatch", "settle", "leases", "maintenance", "timeouts", "listen"}
CONNECTED = LOOPS - {"timeouts"}
#: Its other threads: executors, what watches them, and who waits for the end.
OTHERS = {"asyncio", "loop-watch", "threads", "def", "end"}
#: With polls this far apart, whatever begins was woken.
POLL = timedelta(hours=1)
LISTENERS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND query NOT LIKE '%probe%' AND datname = current_database()"
)


class Whole:
    """The jobs of one runner that has all loops, and what became of them."""

    def __init__(self, engine: Engine) -> None:
        self.recorder = Recorder()
        self.registry = Registry()
        self.runs: Counter[int] = Counter()
        self.brief: set[int] = set()
        self.long = 0
        #: A job that waits for it is done as soon as it is set.
        self.gate = threading.Event()
        self._ended = threading.Event()
        self._engine = create_engine(engine.url, poolclass=NullPool)
        self._watcher = create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._rounds = 0
        self._register()

    def _register(self) -> None:
        at_once = timedelta(milliseconds=100)

        @self.registry.handler("thread", queue="threads", retry=never())
        def thread(ctx: JobContext) -> None:
            self.runs[ctx.id] += 1

        @self.registry.handler("coroutine", queue="coroutines", retry=never())
        async def coroutine(ctx: JobContext) -> None:
            self.runs[ctx.id] += 1

        @self.registry.handler("thread of the loop", queue="coroutines", retry=never())
        def thread_of_the_loop(ctx: JobContext) -> None:
            self.runs[ctx.id] += 1

        @self.registry.handler("block", queue="coroutines", retry=never())
        async def block(ctx: JobContext) -> None:
            self.runs[ctx.id] += 1
            blocked, deadline = len(self.recorder.of(LoopBlocked)), time.monotonic() + SOON
            while len(self.recorder.of(LoopBlocked)) == blocked and time.monotonic() < deadline:
                time.sleep(0.01)

        @self.registry.handler("long", queue="threads", retry=never())
        def long(ctx: JobContext) -> None:
            self.runs[ctx.id] += 1
            words = 0
            while not self._ended.wait(0.05):
                ctx.progress(None, str(words := words + 1))

        @self.registry.handler("gated", queue="threads", retry=never())
        def gated(ctx: JobContext) -> None:
            self.runs[ctx.id] += 1
            self.gate.wait()

        @self.registry.handler("late", queue="coroutines", timeout=at_once, retry=never())
        async def late() -> None:
            await asyncio.sleep(PATIENCE)

        @self.registry.handler("deaf", queue="threads", timeout=at_once, retry=never())
        def deaf(ctx: JobContext) -> None:
            while not ctx.lost:
                self._ended.wait(0.01)

    def begin(self) -> None:
        """With the job whose lease has to be kept to the end, and another one."""
        with self._engine.begin() as connection:
            self.long = add(connection, "long", queue="threads")
            self.brief.add(add(connection, "gated", queue="threads"))
        self.recorder.wait_for(JobStarted, count=2)

    def prove(self, *, within: float = SOON) -> None:
        """Give every loop something to do and see it done; AssertionError with what isn't after so many seconds."""
        left = self._new_work()
        deadline = time.monotonic() + within
        with self._watcher.connect() as connection:
            while left := {name: done for name, done in left.items() if not done(connection)}:
                if time.monotonic() > deadline:
                    events = "\n".join(map(str, self.recorder.events[-40:]))
                    raise AssertionError(f"not within {within:g} s: {', '.join(left)}\n{events}")
                time.sleep(0.02)

    def _new_work(self) -> dict[str, Callable[[Any], bool]]:
        self._rounds += 1
        stranger, elsewhere = f"unknown-{self._rounds}", f"elsewhere-{self._rounds}"
        past = "2020-01-01T00:00:00Z"
        with self._engine.begin() as engine:
            before = engine.execute(text(ROW), {"id": self.long}).one()
            brief = {kind: add(engine, kind, queue="threads") for kind in ("thread",)}
            brief |= {
                kind: add(engine, kind, queue="coroutines")
                for kind in ("coroutine", "thread of the loop", "block")
            }
            late, deaf = add(engine, "late", queue="coroutines"), add(engine, "deaf", queue="threads")
            lost = add(
                engine,
                "thread",
                queue="threads",
                status="running",
                attempts=1,
                max_attempts=1,
                lease_token="00000000-0000-0000-0000-00000000000a",
                lease_until=past,
                leased_by="nobody",
            )
            old = add(engine, "thread", queue="threads", status="done", finished_at=past)
            add(engine, stranger, queue="threads")
            add(engine, "thread", queue=elsewhere)
        self.brief |= set(brief.values())

        def status(job: int, wanted: str | None) -> Callable[[Any], bool]:
            return lambda watcher: watcher.scalar(text(STATUS), {"id": job}) == wanted

        def told(kind: type[Any], name: str, field: str) -> Callable[[Any], bool]:
            return lambda _: any(name in getattr(event, field) for event in self.recorder.of(kind))

        blocked = len(self.recorder.of(LoopBlocked))

        def of_long(watcher: Any) -> Any:
            return watcher.execute(text(ROW), {"id": self.long}).one()

        return {
            **{f"{kind} is done": status(job, "done") for kind, job in brief.items()},
            "a coroutine has timed out": status(late, "dead"),
            "a thread has timed out": status(deaf, "dead"),
            "a lost job is rescued": status(lost, "dead"),
            "an old job is pruned": status(old, None),
            "an unknown kind is told": told(UnknownKinds, stranger, "kinds"),
            "an unserved queue is told": told(UnservedQueues, elsewhere, "queues"),
            "the lease is renewed": lambda watcher: of_long(watcher).lease_until > before.lease_until,
            "progress is written": lambda watcher: of_long(watcher).progress != before.progress,
            "somebody listens": lambda watcher: watcher.scalar(LISTENERS) == 1,
            "the watch has seen who blocks": lambda _: len(self.recorder.of(LoopBlocked)) > blocked,
        }

    def end(self) -> None:
        """Let all jobs end."""
        self.gate.set()
        self._ended.set()

    def check(self, *, once: bool) -> None:
        """Nothing was lost, whatever happened, and with `once` nothing ran twice."""
        ids = {*self.brief, self.long}
        assert set(self.runs) == ids
        assert not once or set(self.runs.values()) == {1}
        with self._watcher.connect() as watcher:
            rows = watcher.execute(text(ENDS), {"ids": sorted(ids)}).all()
        assert [tuple(row) for row in rows] == [("done", 1, len(ids))]


STATUS = "SELECT status FROM jobqueue_jobs WHERE id = :id"
ROW = "SELECT lease_until, progress FROM jobqueue_jobs WHERE id = :id"
ENDS = (
    "SELECT status, attempts - returned, count(*) FROM jobqueue_jobs WHERE id = ANY(:ids) AND status <> 'ready'"
    " GROUP BY 1, 2"
)


def loops_of(runner: Runner) -> dict[str, Loop[Any]]:
    """All loops of a runner that has been started, found where it keeps them."""
    return {loop.name: loop for loop in vars(runner._crew).values() if isinstance(loop, Loop)}


def threads_of_runners() -> set[str]:
    """The names of all threads of runners, without their numbers."""
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("sa_jobqueue-")}
    return {re.sub(r"-\d+$", "", name).removeprefix("sa_jobqueue-") for name in names}


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a runner does once a minute, several times a second."""
    for name in ("maintenance.unknown.LOOK_INTERVAL", "maintenance.acts.LOOK_INTERVAL"):
        monkeypatch.setattr(f"sa_jobqueue.{name}", 0.1)
    monkeypatch.setattr("sa_jobqueue.runner.executors.loop_watch.BLOCKED_AFTER", 0.1)
    monkeypatch.setattr("sa_jobqueue.runner.executors.loop_watch.LOOK_INTERVAL", 0.02)


@contextmanager
def whole(
    engine: Engine, url: str | URL, *, once: bool = True, **changes: Any
) -> Iterator[tuple[Whole, Runner]]:
    """A runner with every loop, which all have to be at work after the block."""
    work = Whole(engine)
    quick = {
        "lease": timedelta(seconds=1.5),
        "poll_interval": POLL,
        "prune_interval": timedelta(milliseconds=100),
        "queues": {"threads": 4, "coroutines": QueueSettings(4, "asyncio")},
    }
    with Runner(work.registry, url, settings(**(quick | changes)), subscribers=[work.recorder]) as runner:
        try:
            work.begin()
            yield work, runner
            work.prove()
        finally:
            work.end()
    work.check(once=once)
