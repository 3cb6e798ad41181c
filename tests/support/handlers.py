"""Handlers that nobody has registered yet, and a context to call them with."""

from __future__ import annotations

from datetime import UTC, datetime

from sa_jobqueue.context import JobContext

CONTEXT = JobContext(
    id=17,
    kind="k",
    queue="default",
    payload={},
    attempt=1,
    max_attempts=5,
    idempotency_key=None,
    run_at=datetime(2030, 1, 1, tzinfo=UTC),
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
    runner_id="host-1",
)


def embed(ctx: JobContext, document_id: int, model: str = "m1") -> tuple[JobContext, int, str]:
    return ctx, document_id, model


def nothing() -> str:
    return "ran"
