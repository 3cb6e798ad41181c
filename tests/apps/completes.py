"""Handlers whose process dies at their first attempt, at some moment of their completion."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event

from sa_jobqueue.context import JobContext
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from tests.support.effects import WRITE

jobs = Registry()
SOON = fixed(timedelta(milliseconds=100))
_dying: list[str] = []


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@event.listens_for(Engine, "after_cursor_execute")
def _between_fence_and_commit(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
    if _dying and "pg_current_xact_id" in statement:
        _die()


def _complete(ctx: JobContext, moment: str) -> None:
    with ctx.complete() as session:
        session.execute(WRITE, {"job_id": ctx.id})
        if ctx.attempt == 1 and moment == "before":
            _die()
        if ctx.attempt == 1 and moment == "fenced":
            _dying.append(moment)
    if ctx.attempt == 1:
        _die()


@jobs.handler("work", retry=SOON)
def work(ctx: JobContext, moment: str) -> None:
    """Dies before the fence, between the fence and the COMMIT, or after the COMMIT."""
    _complete(ctx, moment)
