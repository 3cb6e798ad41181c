"""Async handlers that write down, in transactions of their own, when they began and ended, and how they like to end."""

from __future__ import annotations

import asyncio
import time

from sa_jobqueue.context import JobContext
from sa_jobqueue.registry import Registry
from tests.apps.ledger import SOON, note, noted

jobs = Registry()


@jobs.handler("await", retry=SOON)
async def wait(ctx: JobContext, seconds: float) -> None:
    """Waits as it is told to, and lets itself be cancelled."""
    await asyncio.to_thread(note, ctx, "begin")
    await asyncio.sleep(seconds)
    await asyncio.to_thread(note, ctx, "end")


@jobs.handler("clean-up", retry=SOON)
async def clean_up(ctx: JobContext) -> None:
    """Takes a second to clean up when it is cancelled."""
    await asyncio.to_thread(note, ctx, "begin")
    try:
        await asyncio.sleep(120)
    finally:
        await asyncio.sleep(1)
        note(ctx, "clean")


@jobs.handler("shield", retry=SOON)
async def shield(ctx: JobContext) -> None:
    """Can't be cancelled."""
    await asyncio.to_thread(note, ctx, "begin")
    ends_at = time.monotonic() + 120
    while time.monotonic() < ends_at:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            note(ctx, "ignored")


@jobs.handler("block", retry=SOON)
async def block(ctx: JobContext) -> None:
    """Forgets that it is on a loop, until somebody writes "release" into the ledger."""
    note(ctx, "begin")
    while not noted("release"):
        time.sleep(0.05)
    note(ctx, "end")
