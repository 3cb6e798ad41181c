"""Claimed jobs, executions and outcomes without a database, for the pure steps and for executors."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sa_jobqueue.context import context_of
from sa_jobqueue.handlers import Handler
from sa_jobqueue.records import ClaimedJob, Landing, Settled, Settlement
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner.executors.protocol import Execution, Executor
from sa_jobqueue.runner.settle import Finished
from sa_jobqueue.states import JobStatus, Verb

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_IDS = itertools.count(1)


def claimed_job(**changes: Any) -> ClaimedJob:
    """A job as a claim answers it, at its first attempt of five."""
    number = next(_IDS)
    values: dict[str, Any] = {
        "id": number,
        "token": UUID(int=number),
        "kind": "work",
        "queue": "default",
        "payload": {},
        "payload_version": 1,
        "priority": 5,
        "attempts": 1,
        "returned": 0,
        "max_attempts": 5,
        "run_at": NOON,
        "created_at": NOON,
        "idempotency_key": None,
        "expired": False,
    }
    return ClaimedJob(**(values | changes))


def handler(function: Callable[..., Any] = lambda: None, **settings: Any) -> Handler[..., ..., Any]:
    """A registered handler."""
    registry = Registry()
    registry.handler("work", **settings)(function)
    (registered,) = registry.handlers
    return registered


def execution(function: Callable[..., Any] = lambda: None, **changes: Any) -> Execution:
    """A claimed job with its handler and context."""
    job = claimed_job(**changes)
    return Execution(job, handler(function), context_of(job, runner_id="me"))


def finished(verb: Verb = Verb.COMPLETE, *, seconds: float | None = 0.1, **changes: Any) -> Finished:
    """An execution with its outcome; `seconds` None for one that never began."""
    one = execution(**changes)
    return Finished(one, Settlement(*one.key, verb), seconds)


def settled(one: Finished, landing: Landing = Landing.LANDED) -> Settled:
    """The store's answer to it."""
    status = JobStatus.DONE if landing is Landing.LANDED else None
    return Settled(*one.execution.key, landing, status)


def race_to_the_stop(executor: Executor, executions: Sequence[Execution]) -> list[Execution]:
    """Submit these one by one, take some back and stop, all at once; those that came back."""
    back: list[Execution] = []
    ready = threading.Barrier(3)

    def submit() -> None:
        ready.wait()
        for execution in executions:
            executor.submit([execution])

    def take() -> None:
        ready.wait()
        for _ in range(5):
            back.extend(executor.take_back(["default"]))

    threads = [threading.Thread(target=target) for target in (submit, take)]
    for thread in threads:
        thread.start()
    ready.wait()
    executor.stop()
    for thread in threads:
        thread.join()
    return back
