"""What a handler is given belongs to no session: plain values, in every executor, however long it runs."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sa_jobqueue import JobContext, Registry, enqueue, enqueue_many
from sa_jobqueue.events import JobSettled
from sa_jobqueue.runner import QueueSettings
from tests.support.runners import row, running, wait_for_row
from tests.support.waiting import PATIENCE, wait_until

NAMES = (
    *("id", "kind", "queue", "payload", "attempt", "max_attempts", "idempotency_key", "run_at", "created_at"),
    *("runner_id", "lost", "cancel_requested", "latest_progress"),
)


@pytest.mark.parametrize("executor", ["thread", "async on asyncio", "def on asyncio"])
def test_every_attribute_can_be_read_at_any_time(executor: str, engine: Engine, database_url: str) -> None:
    """At the start, and again when the lease has been renewed; copies and pickles show the same."""
    registry = Registry()
    renewed = threading.Event()
    seen: list[dict[str, Any]] = []

    def look(ctx: JobContext) -> None:
        ones = (ctx, copy.copy(ctx), copy.deepcopy(ctx), pickle.loads(pickle.dumps(ctx)))
        seen.extend({name: getattr(one, name) for name in NAMES} for one in ones)

    def handle(ctx: JobContext, a: list[Any]) -> None:
        look(ctx)
        assert renewed.wait(PATIENCE)
        look(ctx)

    async def handle_async(ctx: JobContext, a: list[Any]) -> None:
        look(ctx)
        while not renewed.is_set():
            await asyncio.sleep(0.01)
        look(ctx)

    registry.handler("k")(handle_async if executor.startswith("async") else handle)
    with engine.begin() as connection:
        job = enqueue("k", {"a": [1, {"b": None}]}, priority=0, max_attempts=3, idempotency_key="x")
        (told,) = enqueue_many(connection, [job])
    where = "thread" if executor == "thread" else "asyncio"
    with running(registry, database_url, queues={"default": QueueSettings(1, where)}) as recorder:
        wait_until(lambda: len(seen) == 4, what="the handler's first look")
        began = row(engine, told.id).lease_until
        wait_for_row(engine, told.id, lambda now: now.lease_until > began + timedelta(milliseconds=1))
        renewed.set()
        recorder.wait_for(JobSettled)
    assert row(engine, told.id).status == "done"
    assert len(seen) == 8
    assert all(one == seen[0] for one in seen)
    assert seen[0] | {"run_at": None, "created_at": None, "runner_id": None} == {
        "id": told.id,
        "kind": "k",
        "queue": "default",
        "payload": {"a": [1, {"b": None}]},
        "attempt": 1,
        "max_attempts": 3,
        "idempotency_key": "x",
        "run_at": None,
        "created_at": None,
        "runner_id": None,
        "lost": False,
        "cancel_requested": False,
        "latest_progress": None,
    }
