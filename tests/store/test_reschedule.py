"""Reschedule: a person gives a waiting job another due time or another priority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func
from sqlalchemy.orm import Session

from sa_jobqueue.admin import OperatorResult, reschedule
from sa_jobqueue.statements import claim
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, add_running, read_job, server_time
from tests.support.locks import in_thread, wait_for_a_lock

HOUR = timedelta(hours=1)
FAR = datetime(2100, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def reschedule_and_commit(engine: Engine, *ids: int, **given: Any) -> list[OperatorResult]:
    with engine.begin() as connection:
        return reschedule(connection, ids, **given)


def moved(job_id: int) -> OperatorResult:
    return OperatorResult(job_id, landed=True, status=JobStatus.READY)


def claimed_ids(store: Store) -> list[int]:
    claimed = store.claim(token=uuid4(), quotas={"default": 9}, kinds=["test"], lease=MINUTE)
    return [job.id for job in claimed]


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"run_at": FAR}, {"run_at": FAR}),
        ({"run_at": FAR.astimezone(timezone(timedelta(hours=-7)))}, {"run_at": FAR}),
        ({"priority": 0}, {"priority": 0}),
        ({"run_at": FAR, "priority": 9}, {"run_at": FAR, "priority": 9}),
    ],
)
def test_what_is_given_changes_and_nothing_else(
    engine: Engine, given: dict[str, Any], changed: dict[str, Any]
) -> None:
    """The job is ready as before, with all it has been through; a time is the moment, in whatever zone it is written."""
    job_id = add_job(engine, attempts=2, returned=1, last_error="the last attempt's")
    before = read_job(engine, job_id)
    assert reschedule_and_commit(engine, job_id, **given) == [moved(job_id)]
    row = read_job(engine, job_id)
    differing = {
        name: getattr(row, name) for name in row._fields if getattr(row, name) != getattr(before, name)
    }
    assert differing.pop("updated_at") > before.updated_at
    assert differing == changed


def test_a_delay_counts_from_the_databases_clock(engine: Engine) -> None:
    """It begins with the call, however long the caller's transaction has been open."""
    job_id = add_job(engine)
    with engine.begin() as connection:
        opened = connection.execute(func.now().select()).scalar_one()
        before = server_time(engine)
        reschedule(connection, [job_id], delay=HOUR, priority=3)
    row = read_job(engine, job_id)
    assert opened + HOUR < before + HOUR <= row.run_at <= server_time(engine) + HOUR
    assert row.priority == 3


def test_a_claim_goes_by_what_was_decided(engine: Engine, store: Store) -> None:
    """Put off, a job isn't claimed; due at once, it is; ahead of others by its priority."""
    put_off, behind, ahead, at_once = (add_job(engine) for _ in range(4))
    reschedule_and_commit(engine, put_off, at_once, delay=HOUR)
    reschedule_and_commit(engine, ahead, priority=0)
    reschedule_and_commit(engine, at_once, delay=timedelta(0))
    assert claimed_ids(store) == [ahead, behind, at_once]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("running", "the job is running, not ready"),
        ("done", "the job is done"),
        ("dead", "the job is dead, not ready: redrive it first"),
        ("cancelled", "the job is cancelled, not ready: redrive it first"),
    ],
)
def test_a_job_that_does_not_wait_stays(engine: Engine, status: str, reason: str) -> None:
    """Only a ready job has a due time to come; the answer says what the job is, and what leads back."""
    job_id = (
        add_running(engine, uuid4())
        if status == "running"
        else add_job(engine, status=status, finished_at=func.now())
    )
    before = read_job(engine, job_id)
    stayed = OperatorResult(job_id, landed=False, status=JobStatus(status), reason=reason)
    assert reschedule_and_commit(engine, job_id, delay=HOUR) == [stayed]
    assert read_job(engine, job_id) == before


@pytest.mark.parametrize("given", [{"run_at": FAR}, {"delay": 2 * HOUR}])
def test_a_job_is_not_put_off_past_its_end(engine: Engine, given: dict[str, Any]) -> None:
    """It could never start, which enqueue() refuses as well; a change of priority alone asks nothing of the time."""
    job_id = add_job(engine, expires_at=func.now() + HOUR)
    before = read_job(engine, job_id)
    (answer,) = reschedule_and_commit(engine, job_id, priority=0, **given)
    reason = "the job expires by then: it could never start"
    assert answer == OperatorResult(job_id, landed=False, status=JobStatus.READY, reason=reason)
    assert read_job(engine, job_id) == before
    assert reschedule_and_commit(engine, job_id, delay=HOUR / 2, priority=0) == [moved(job_id)]
    expired = add_job(engine, expires_at=func.now() - HOUR)
    assert reschedule_and_commit(engine, expired, priority=0) == [moved(expired)]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, TypeError, "nothing to change: pass run_at or delay, priority"),
        ({"run_at": FAR, "delay": HOUR}, ValueError, "run_at and delay exclude each other"),
        ({"run_at": datetime(2100, 1, 1)}, ValueError, "naive"),  # noqa: DTZ001 - that is what is refused
        ({"run_at": "tomorrow"}, TypeError, "run_at: expected an aware datetime, got str"),
        ({"run_at": datetime(9999, 1, 1, tzinfo=UTC)}, ValueError, "years"),
        ({"delay": 60}, TypeError, "delay: expected a datetime.timedelta"),
        ({"delay": -HOUR}, ValueError, "delay: a delay can't be negative"),
        ({"priority": 10}, ValueError, "priority: 10 is not between 0 and 9"),
        ({"priority": True}, TypeError, "priority: expected an int, got bool"),
    ],
)
def test_what_cannot_work_is_refused_at_the_call(
    given: dict[str, Any], error: type[Exception], says: str
) -> None:
    """As by enqueue(), naming the argument, and before the caller's transaction has begun."""
    with Session() as session:
        with pytest.raises(error, match=says):
            reschedule(session, [1], **given)
        assert not session.in_transaction()


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_under_way_is_waited_for(engine: Engine, *, commit: bool) -> None:
    """A job that is being claimed is running when the person gets it, and stays; if the claim comes to nothing, it moves."""
    job_id = add_job(engine)
    terms = {"queues": ["default"], "quotas": [9], "kinds": ["test"], "token": uuid4(), "lease": MINUTE}
    with engine.connect() as runner:
        assert len(runner.execute(claim.claim(), {**terms, "runner": "first"}).all()) == 1
        thread, answers = in_thread(lambda: reschedule_and_commit(engine, job_id, delay=HOUR))
        wait_for_a_lock(engine)
        runner.commit() if commit else runner.rollback()
        thread.join()
    reason = "the job is running, not ready"
    stayed = OperatorResult(job_id, landed=False, status=JobStatus.RUNNING, reason=reason)
    assert answers == [[stayed if commit else moved(job_id)]]


def test_a_claim_passes_over_what_is_being_moved(engine: Engine, store: Store) -> None:
    """A runner waits for no person, and takes the job by its new time only."""
    job_id, neighbour = add_job(engine), add_job(engine)
    with engine.begin() as connection:
        reschedule(connection, [job_id], delay=HOUR)
        assert claimed_ids(store) == [neighbour]
    assert claimed_ids(store) == []


def test_two_people_at_once(engine: Engine) -> None:
    """The second waits and has the last word; what only the first one gave stays."""
    job_id = add_job(engine)
    with engine.begin() as first:
        reschedule(first, [job_id], run_at=FAR, priority=1)
        thread, answers = in_thread(lambda: reschedule_and_commit(engine, job_id, priority=2))
        wait_for_a_lock(engine)
    thread.join()
    row = read_job(engine, job_id)
    assert (answers, row.run_at, row.priority) == ([[moved(job_id)]], FAR, 2)
