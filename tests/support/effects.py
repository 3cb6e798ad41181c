"""Handlers that complete their jobs with a row of their own, in threads and on an event loop, and what is left of it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobSettled
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.states import JobStatus, Verb
from tests.support.runners import Recorder, add
from tests.support.waiting import PATIENCE

#: No key guards it: whatever is written twice is there twice.
CREATE_EFFECTS = "CREATE TABLE effects (job_id bigint)"
WRITE = text("INSERT INTO effects (job_id) VALUES (:job_id)")
AT_ONCE = fixed(timedelta(0))

#: So long that no test with these settings can end by a lease that is over.
LONG = {"lease": timedelta(minutes=5), "rescue_interval": timedelta(hours=1)}
DONE = (Verb.COMPLETE, JobStatus.DONE)

Step = Callable[[JobContext], Any]


def _nothing(_: JobContext) -> None: ...


def create_effects(connection: Connection) -> None:
    connection.execute(text(CREATE_EFFECTS))


def effects(engine: Engine) -> dict[int, int]:
    """How many rows the handlers of each job have left."""
    with engine.connect() as connection:
        return dict(Counter(connection.execute(text("SELECT job_id FROM effects")).scalars()))


def one_job(engine: Engine) -> int:
    """A job for the handler `work`, which may leave effects."""
    with engine.begin() as connection:
        create_effects(connection)
        return add(connection, "work")


def told(recorder: Recorder) -> list[tuple[Verb, JobStatus]]:
    """The outcomes that were stored, in their order."""
    return [(it.verb, it.status) for it in recorder.of(JobSettled)]


def commits(text: str) -> bool:
    """For a proxy: handlers alone commit, the runner's own statements need no COMMIT."""
    return text.strip().upper() == "COMMIT"


@dataclass
class Halt:
    """A step that says that it was `reached`, and waits for the test to let it `go_on`."""

    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, _: JobContext) -> None:
        self.reached.set()
        self.go_on.wait(PATIENCE)


@dataclass
class Completing:
    """A registry with the handler `work`, async or not: it writes one row in its completion.

    `inside` comes after that write, within the block, `after` behind the block; both may block. What the latter returns,
    the handler does. `failed` comes when the block has raised, and `swallow` hides that. `errors` is what left it, `runs`
    counts.
    """

    where: str
    inside: Step = _nothing
    after: Step = _nothing
    failed: Step = _nothing
    swallow: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    runs: Counter[int] = field(default_factory=Counter)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = Registry()
        register = self.jobs.handler("work", **({"retry": AT_ONCE} | self.settings))
        if self.where == "asyncio":
            register(self._work_async)
        else:
            register(self._work)

    def _work(self, ctx: JobContext) -> Any:
        self.runs[ctx.id] += 1
        try:
            with ctx.complete() as session:
                session.execute(WRITE, {"job_id": ctx.id})
                self.inside(ctx)
        except BaseException as error:
            self.errors.append(error)
            self.failed(ctx)
            if not self.swallow:
                raise
        return self.after(ctx)

    async def _work_async(self, ctx: JobContext) -> Any:
        self.runs[ctx.id] += 1
        try:
            async with ctx.complete() as session:
                await session.execute(WRITE, {"job_id": ctx.id})
                await asyncio.to_thread(self.inside, ctx)
        except BaseException as error:
            self.errors.append(error)
            self.failed(ctx)
            if not self.swallow:
                raise
        return await asyncio.to_thread(self.after, ctx)
