"""A person's verb on a row that the application's own triggers and constraints protect."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from sa_jobqueue.admin import cancel, redrive, reschedule
from sa_jobqueue.records import OperatorResult
from sa_jobqueue.states import JobStatus
from tests.support.jobs import add_job, add_running, keyed, read_job, refuse

LATER = timedelta(hours=1)
SECRET = "S3CR3T-42"
READY, RUNNING, DEAD = JobStatus.READY, JobStatus.RUNNING, JobStatus.DEAD
#: The verb, the status of the job, and what else is true of it.
VERBS: dict[str, tuple[Callable[..., Any], JobStatus, dict[str, Any]]] = {
    "cancel": (cancel, READY, {}),
    "cancel of a running job": (cancel, RUNNING, {}),
    "redrive": (redrive, DEAD, {}),
    "redrive with a key": (redrive, DEAD, keyed("k", held=False)),
    "reschedule": (partial(reschedule, delay=LATER), READY, {}),
    "reschedule of one that expires": (
        partial(reschedule, priority=0),
        READY,
        {"expires_at": func.now() + LATER},
    ),
}


def add(engine: Engine, status: JobStatus, more: dict[str, Any]) -> int:
    if status is RUNNING:
        return add_running(engine, uuid4(), **more)
    return add_job(engine, status=status, finished_at=func.now() if status is DEAD else None, **more)


@pytest.mark.parametrize("name", VERBS)
def test_a_trigger_that_skips_the_update_is_told(engine: Engine, name: str) -> None:
    """The row stays as it was and the answer says why, in nobody else's words; its neighbour goes."""
    verb, status, more = VERBS[name]
    kept = add(engine, status, more)
    other = add(engine, status, more | ({"idempotency_key": "other"} if "idempotency_key" in more else {}))
    refuse(engine, kept, "RETURN NULL")
    before = read_job(engine, kept)
    with engine.begin() as connection:
        answers = verb(connection, [kept, other])
    reason = "the database left the job as it was: see the triggers of its table"
    assert answers[0] == OperatorResult(kept, landed=False, status=status, reason=reason)
    assert answers[1].landed
    assert read_job(engine, kept) == before


def constrain(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE jobqueue_jobs ADD CONSTRAINT app_c CHECK (updated_at < now() - '1 h'::interval)"
        )


@pytest.mark.parametrize("driver", [None, "psycopg", "asyncpg"])
@pytest.mark.parametrize("name", VERBS)
def test_no_text_of_the_error_holds_the_payload(engine: Engine, name: str, driver: str | None) -> None:
    """DETAIL quotes the failing row, and error texts end up in logs."""
    verb, status, more = VERBS[name]
    job_id = add(engine, status, more | {"payload": {"token": SECRET}, "updated_at": func.now() - 2 * LATER})
    constrain(engine)

    def act() -> None:
        with engine.begin() as connection:
            verb(connection, [job_id])

    async def act_async() -> None:
        async_engine = create_async_engine(engine.url.set(drivername=f"postgresql+{driver}"))
        try:
            async with async_engine.begin() as connection:
                await verb(connection, [job_id])
        finally:
            await async_engine.dispose()

    with pytest.raises(IntegrityError, match='violates check constraint "app_c"') as caught:
        act() if driver is None else asyncio.run(act_async())
    assert SECRET not in "".join(traceback.format_exception(caught.value))
