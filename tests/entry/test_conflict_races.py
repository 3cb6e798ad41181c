"""A waiting job is changed by its key while others are at it: whoever comes later waits, and sees what became of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, delete, func, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from sa_jobqueue import Enqueued, JobStatus, enqueue
from sa_jobqueue.models import jobs
from sa_jobqueue.records import OnConflict
from tests.entry.counting import rows
from tests.entry.second import Second
from tests.support.jobs import add_job, keyed, read_job
from tests.support.waiting import PATIENCE

LATER = datetime(2031, 1, 1, tzinfo=UTC)
RUNNING = {"status": "running", "attempts": 1, "lease_token": uuid4(), "lease_until": LATER}
CHANGING: list[OnConflict] = ["replace", "reschedule"]


@pytest.fixture
def held(application: Engine) -> int:
    """A waiting job that holds the key."""
    return add_job(application, kind="first", **keyed("x", scope="row"))


@pytest.mark.parametrize("on_conflict", CHANGING)
@pytest.mark.parametrize(
    ("change", "outcome", "status"),
    [
        (RUNNING, "running", JobStatus.RUNNING),
        ({"status": "cancelled", "finished_at": func.now()}, "existing", JobStatus.CANCELLED),
        ({"priority": 1}, None, JobStatus.READY),
    ],
)
def test_it_waits_for_who_has_the_row_locked(
    change: dict[str, Any],
    outcome: Any,
    status: JobStatus,
    on_conflict: OnConflict,
    application: Engine,
    held: int,
    pool: ThreadPoolExecutor,
) -> None:
    """What the other transaction makes of the job decides, and is not undone."""
    with application.begin() as connection:
        connection.execute(update(jobs).values(**change))
        second = Second(application, pool, on_conflict=on_conflict)
        second.wait_until_blocked()
    changed = {"replace": "replaced", "reschedule": "rescheduled"}[on_conflict]
    assert second.outcome.result(PATIENCE) == Enqueued(held, outcome or changed, status)
    row = read_job(application, held)
    assert row.status == status
    assert row.kind == ("second" if outcome is None and on_conflict == "replace" else "first")


@pytest.mark.parametrize("on_conflict", CHANGING)
def test_a_holder_that_is_deleted_meanwhile(
    on_conflict: OnConflict, application: Engine, held: int, pool: ThreadPoolExecutor
) -> None:
    """The key is free then: the job is inserted after all."""
    with application.begin() as connection:
        connection.execute(delete(jobs))
        second = Second(application, pool, on_conflict=on_conflict)
        second.wait_until_blocked()
    outcome = second.outcome.result(PATIENCE)
    assert outcome
    assert (outcome.outcome, outcome.id) == ("created", rows(application, "id")[0])
    assert outcome.id != held


def test_two_replacements_follow_each_other(
    application: Engine, held: int, session: Session, pool: ThreadPoolExecutor
) -> None:
    """The later one stands, and neither is lost in silence."""
    session.add(job := enqueue("third", idempotency_key="x", on_conflict="replace"))
    session.flush()
    second = Second(application, pool, on_conflict="replace")
    second.wait_until_blocked()
    session.commit()
    assert job.enqueued == second.outcome.result(PATIENCE) == Enqueued(held, "replaced")
    assert rows(application, "kind") == ["second"]


@pytest.mark.parametrize("on_conflict", CHANGING)
def test_repeatable_read(
    on_conflict: OnConflict, application: Engine, held: int, pool: ThreadPoolExecutor
) -> None:
    """A holder that was changed after the snapshot is a serialization failure, by that level's contract."""
    strict = application.execution_options(isolation_level="REPEATABLE READ")
    with application.begin() as connection:
        connection.execute(update(jobs).values(priority=1))
        second = Second(strict, pool, on_conflict=on_conflict)
        second.wait_until_blocked()
    with pytest.raises(OperationalError) as caught:
        second.outcome.result(PATIENCE)
    assert getattr(caught.value.orig, "sqlstate", None) == "40001"
    assert read_job(application, held).kind == "first"
