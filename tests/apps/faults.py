"""A runner in which something breaks as soon as its first job has begun: which and how is told by the environment."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sa_jobqueue import JobContext, Registry
from sa_jobqueue.loop import Loop
from sa_jobqueue.runner.crew import Crew
from sa_jobqueue.runner.executors import event_loop, loop_watch


class BareError(BaseException):
    """As GreenletExit is one."""


ERRORS = {kind.__name__: kind for kind in (BareError, MemoryError, RecursionError, SystemExit, ValueError)}
#: A loop and which part of it, or another thread of the runner; and the name of an error.
WHERE, PART, ERROR = os.environ["SA_JOBQUEUE_TEST_FAULT"].split(":")
#: And so is the queue.
QUEUE = os.environ["SA_JOBQUEUE_TEST_QUEUE"]

jobs = Registry()
begun = threading.Event()


@jobs.handler("work", queue=QUEUE, timeout=timedelta(milliseconds=300))
def work(ctx: JobContext) -> None:
    """Runs until somebody else has the job."""
    begun.set()
    while not ctx.lost:
        time.sleep(0.01)


@jobs.handler("end", queue=QUEUE)
async def end() -> None:
    """Gives those something to do who write outcomes."""


def breaking(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, which fails from the first job on."""

    def fail(*arguments: Any, **named: Any) -> Any:
        if begun.is_set():
            raise ERRORS[ERROR]("as the test wants it")
        return call(*arguments, **named)

    return fail


def _start(crew: Crew, start: Callable[[Crew], None] = Crew.start) -> None:
    for loop in vars(crew).values():
        if isinstance(loop, Loop) and loop.name == WHERE:
            setattr(loop, PART, breaking(getattr(loop, PART)))
    start(crew)


Crew.start = _start  # type: ignore[method-assign]
if WHERE == "loop-watch":
    loop_watch.look = breaking(loop_watch.look)
if WHERE == "asyncio":
    event_loop.AsyncioExecutor._begin = breaking(event_loop.AsyncioExecutor._begin)  # type: ignore[method-assign]
