"""Handlers that get a token: one that does its work, one that fails where a local variable holds it."""

from __future__ import annotations

from sa_jobqueue.context import JobContext
from sa_jobqueue.registry import Registry

jobs = Registry()


@jobs.handler("success")
def success(user: int, token: str) -> None: ...


@jobs.handler("fails")
async def fails(ctx: JobContext, user: int, token: str) -> None:
    held = dict(ctx.payload)
    raise ValueError(f"x, {ctx}, {len(held)} fields")


@jobs.handler("other fields")
def other_fields(user: int) -> None: ...
