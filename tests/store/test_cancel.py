"""Cancel: a person stops a job that waits and asks for the end of one that runs, whatever else happens to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, delete, func, select, text

from sa_jobqueue.admin import OperatorResult, cancel, redrive
from sa_jobqueue.models import jobs
from sa_jobqueue.records import ClaimedJob, ExpiredLease, Landing, Settlement
from sa_jobqueue.statements import claim, rescue, settle
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, add_running, keyed, read_job
from tests.support.locks import in_thread, wait_for_a_lock

PAST = -timedelta(minutes=5)
REQUESTED = (
    "requested: the runner sees it at its next renewal, and the job is cancelled unless it is done first"
)


def cancel_and_commit(engine: Engine, *ids: int) -> list[OperatorResult]:
    with engine.begin() as connection:
        return cancel(connection, ids)


def cancelled(job_id: int) -> OperatorResult:
    return OperatorResult(job_id, landed=True, status=JobStatus.CANCELLED)


def requested(job_id: int) -> OperatorResult:
    return OperatorResult(job_id, landed=True, status=JobStatus.RUNNING, reason=REQUESTED)


def stayed(job_id: int, status: JobStatus | None, reason: str) -> OperatorResult:
    return OperatorResult(job_id, landed=False, status=status, reason=reason)


def batch(job_id: int, token: UUID, **arrays: Any) -> dict[str, Any]:
    return {"ids": [job_id], "tokens": [token], **arrays}


def claim_due(store: Store) -> list[ClaimedJob]:
    return store.claim(token=uuid4(), quotas={"default": 9}, kinds=["test"], lease=MINUTE)


@pytest.fixture
def first(engine: Engine) -> Iterator[Connection]:
    """A connection with a transaction that the test ends."""
    with engine.connect() as connection:
        yield connection


def test_a_ready_job_is_cancelled_at_once(engine: Engine, store: Store) -> None:
    """Nobody holds it, so nothing has to be asked: it is finished, and no claim takes it."""
    job_id = add_job(engine, last_error="the last attempt's")
    before = read_job(engine, job_id)
    assert cancel_and_commit(engine, job_id) == [cancelled(job_id)]
    row = read_job(engine, job_id)
    assert (row.status, row.reason, row.finished_at) == ("cancelled", "cancelled", row.updated_at)
    assert {name for name in before._fields if getattr(before, name) != getattr(row, name)} == {
        *("status", "reason", "finished_at", "updated_at")
    }
    assert claim_due(store) == []


@pytest.mark.parametrize(("scope", "left"), [("unfinished", None), ("row", "key")])
def test_a_key_goes_by_its_scope(engine: Engine, scope: str, left: str | None) -> None:
    """The key of a cancelled job is free for another one if its scope says so; a running job keeps it."""
    waits = add_job(engine, **keyed("key", scope=scope))
    runs = add_running(engine, uuid4(), **keyed("another", scope=scope))
    cancel_and_commit(engine, waits, runs)
    assert [read_job(engine, job_id).unique_key for job_id in (waits, runs)] == [left, "another"]


def test_a_running_job_gets_the_request(engine: Engine, store: Store, token: UUID) -> None:
    """Its lease, token and attempt are the runner's as before; the next renewal brings the request."""
    job_id = add_running(engine, token)
    assert store.renew([(job_id, token)], lease=MINUTE)[0].cancel_requested is False
    before = read_job(engine, job_id)
    assert cancel_and_commit(engine, job_id) == [requested(job_id)]
    row = read_job(engine, job_id)
    assert row.cancel_requested_at == row.updated_at
    assert {name for name in before._fields if getattr(before, name) != getattr(row, name)} == {
        *("cancel_requested_at", "updated_at")
    }
    (renewed,) = store.renew([(job_id, token)], lease=MINUTE)
    assert (renewed.landing, renewed.cancel_requested) == (Landing.LANDED, True)


def test_a_second_request_changes_nothing(engine: Engine, token: UUID) -> None:
    """Who asked first is who asked: the time of the request stays."""
    job_id = add_running(engine, token)
    cancel_and_commit(engine, job_id)
    asked_at = read_job(engine, job_id).cancel_requested_at
    assert cancel_and_commit(engine, job_id) == [requested(job_id)]
    assert read_job(engine, job_id).cancel_requested_at == asked_at


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("done", "the job is done"),
        ("dead", "the job is dead: it won't run again unless it is redriven"),
        ("cancelled", "the job is cancelled already"),
    ],
)
def test_a_finished_job_stays(engine: Engine, status: str, reason: str) -> None:
    """There is nothing left to stop; the answer says what the job is instead."""
    job_id = add_job(engine, status=status, finished_at=func.now(), reason="of old")
    before = read_job(engine, job_id)
    assert cancel_and_commit(engine, job_id) == [stayed(job_id, JobStatus(status), reason)]
    assert read_job(engine, job_id) == before


def test_a_cancelled_job_can_be_redriven(engine: Engine, store: Store, token: UUID) -> None:
    """With the redrive the request is gone, so that the next run is not cancelled by the last one's."""
    waits, runs = add_job(engine), add_running(engine, token)
    cancel_and_commit(engine, waits, runs)
    store.settle([Settlement(runs, token, Verb.SNOOZE, delay=timedelta(0))])
    with engine.begin() as connection:
        assert [answer.landed for answer in redrive(connection, [waits, runs])] == [True, True]
    claimed = claim_due(store)
    assert {job.id for job in claimed} == {waits, runs}
    renewed = store.renew([(job.id, job.token) for job in claimed], lease=MINUTE)
    assert [answer.cancel_requested for answer in renewed] == [False, False]


LetGo = Callable[[Store, int, UUID], Any]


def by(verb: Verb, **fields: Any) -> LetGo:
    return lambda store, job_id, token: store.settle([Settlement(job_id, token, verb, **fields)])


def by_release_claim(store: Store, job_id: int, token: UUID) -> None:
    assert store.release_claim(token=token) == 1


def by_rescue(store: Store, job_id: int, token: UUID) -> None:
    lease = ExpiredLease(job_id, token, "test", "default", 1, 0, 5, "holder")
    # A margin below zero makes every lease look past.
    (rescued,) = store.rescue([(lease, timedelta(0))], margin=-timedelta(days=1))
    assert rescued.status is JobStatus.CANCELLED


@pytest.mark.parametrize("attempts", [1, 5], ids=["attempts left", "exhausted"])
@pytest.mark.parametrize(
    ("let_go", "error"),
    [
        (by(Verb.RETRY, delay=MINUTE, error="this attempt's"), "this attempt's"),
        (by(Verb.RETRY, delay=MINUTE), "the last attempt's"),
        (by(Verb.SNOOZE, delay=MINUTE), "the last attempt's"),
        (by(Verb.DISCARD, reason="no use", error="this attempt's"), "this attempt's"),
        (by(Verb.RELEASE), "the last attempt's"),
        (by(Verb.ABORT, reason="cancelled"), "the last attempt's"),
        (by_release_claim, "the last attempt's"),
        (by_rescue, "runner holder was lost (lease expired)"),
    ],
    ids=["retry", "retry without error", "snooze", "discard", "release", "abort", "release_claim", "rescue"],
)
def test_whatever_lets_a_job_go_cancels_it(
    engine: Engine, store: Store, token: UUID, let_go: LetGo, error: str, attempts: int
) -> None:
    """After a request no verb but complete leads anywhere else, attempts left or not; errors are kept."""
    job_id = add_running(
        engine, token, attempts=attempts, max_attempts=5, last_error="the last attempt's", **keyed("key")
    )
    cancel_and_commit(engine, job_id)
    let_go(store, job_id, token)
    row = read_job(engine, job_id)
    assert (row.status, row.reason, row.last_error) == ("cancelled", "cancelled", error)
    assert (row.finished_at, row.unique_key, row.leased_by) == (row.updated_at, None, None)
    assert row.cancel_requested_at is not None
    assert claim_due(store) == []


def test_a_completion_that_comes_later_wins(engine: Engine, store: Store, token: UUID) -> None:
    """What is done is done: a request alone takes nothing back."""
    job_id = add_running(engine, token)
    cancel_and_commit(engine, job_id)
    (settled,) = store.settle([Settlement(job_id, token, Verb.COMPLETE)])
    assert (settled.landing, read_job(engine, job_id).status) == (Landing.LANDED, "done")


@pytest.mark.parametrize("commit", [True, False])
def test_a_completion_under_way_is_waited_for(
    engine: Engine, first: Connection, token: UUID, *, commit: bool
) -> None:
    """The person waits for the completion and is told that the job is done; were it undone, the request is there."""
    job_id = add_running(engine, token)
    first.execute(settle.complete(), batch(job_id, token, result_texts=[None])).one()
    thread, answers = in_thread(lambda: cancel_and_commit(engine, job_id))
    wait_for_a_lock(engine)
    first.commit() if commit else first.rollback()
    thread.join()
    assert answers == [[stayed(job_id, JobStatus.DONE, "the job is done") if commit else requested(job_id)]]
    row = read_job(engine, job_id)
    assert (row.status, row.cancel_requested_at is None) == (("done", True) if commit else ("running", False))


def test_a_completion_waits_for_no_person(
    engine: Engine, store: Store, first: Connection, token: UUID
) -> None:
    """While a cancellation is being decided the runner's write is busy, goes on to others, and lands afterwards."""
    job_id, neighbour = add_running(engine, token), add_running(engine, token)
    assert cancel(first, [job_id]) == [requested(job_id)]
    completions = [Settlement(each, token, Verb.COMPLETE) for each in (job_id, neighbour)]
    landings = [settled.landing for settled in store.settle(completions)]
    assert landings == [Landing.BUSY, Landing.LANDED]
    first.commit()
    assert store.settle(completions[:1])[0].landing is Landing.LANDED
    assert read_job(engine, job_id).status == "done"


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_under_way_is_waited_for(engine: Engine, first: Connection, *, commit: bool) -> None:
    """A job that is being claimed is running when the person gets it: then it is a request, else the job is cancelled."""
    job_id = add_job(engine)
    terms = {"queues": ["default"], "quotas": [9], "kinds": ["test"], "token": uuid4(), "lease": MINUTE}
    assert len(first.execute(claim.claim(), {**terms, "runner": "first"}).all()) == 1
    thread, answers = in_thread(lambda: cancel_and_commit(engine, job_id))
    wait_for_a_lock(engine)
    first.commit() if commit else first.rollback()
    thread.join()
    assert answers == [[requested(job_id) if commit else cancelled(job_id)]]


def test_a_claim_passes_over_what_is_being_cancelled(engine: Engine, store: Store, first: Connection) -> None:
    """A runner waits for no person: it takes the next job, and the cancelled one never."""
    job_id, neighbour = add_job(engine), add_job(engine)
    assert cancel(first, [job_id]) == [cancelled(job_id)]
    assert [job.id for job in claim_due(store)] == [neighbour]
    first.commit()
    assert claim_due(store) == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_rescue_under_way_is_waited_for(
    engine: Engine, first: Connection, token: UUID, *, commit: bool
) -> None:
    """A job that is being taken back from a lost runner is ready when the person gets it, and cancelled at once."""
    job_id = add_running(engine, token, lease=PAST)
    given = batch(job_id, token, delays=[MINUTE], margin=timedelta(0))
    assert first.execute(rescue.rescue(), given).one().status == "ready"
    thread, answers = in_thread(lambda: cancel_and_commit(engine, job_id))
    wait_for_a_lock(engine)
    first.commit() if commit else first.rollback()
    thread.join()
    assert answers == [[cancelled(job_id) if commit else requested(job_id)]]


def test_a_rescue_after_the_request_cancels(
    engine: Engine, store: Store, first: Connection, token: UUID
) -> None:
    """The rescue skips the row while the person has it, and then finds the request."""
    job_id = add_running(engine, token, lease=PAST)
    assert cancel(first, [job_id]) == [requested(job_id)]
    lease = ExpiredLease(job_id, token, "test", "default", 1, 0, 5, "holder")
    assert store.rescue([(lease, timedelta(0))], margin=timedelta(0)) == []
    first.commit()
    (rescued,) = store.rescue([(lease, timedelta(0))], margin=timedelta(0))
    assert rescued.status is JobStatus.CANCELLED


def test_two_people_at_once(engine: Engine, first: Connection) -> None:
    """The second waits for the first one's commit, whatever the order of their ids, and is told that it is cancelled."""
    ids = [add_job(engine) for _ in range(2)]
    assert cancel(first, ids[1:]) == [cancelled(ids[1])]
    thread, answers = in_thread(lambda: cancel_and_commit(engine, *reversed(ids)))
    wait_for_a_lock(engine)
    # The second has locked the lower id already, and waits for the higher one: so that this one can only be had before.
    with engine.connect() as third:
        free = select(jobs.c.id).order_by(jobs.c.id).with_for_update(key_share=True, skip_locked=True)
        assert third.execute(free).all() == []
    first.commit()
    thread.join()
    assert answers == [
        [stayed(ids[1], JobStatus.CANCELLED, "the job is cancelled already"), cancelled(ids[0])]
    ]


@pytest.mark.parametrize("commit", [True, False])
def test_a_redrive_under_way_is_waited_for(engine: Engine, first: Connection, *, commit: bool) -> None:
    """A dead job that is being sent back is ready when the person gets it."""
    job_id = add_job(engine, status="dead", finished_at=func.now())
    assert redrive(first, [job_id])[0].landed
    thread, answers = in_thread(lambda: cancel_and_commit(engine, job_id))
    wait_for_a_lock(engine)
    first.commit() if commit else first.rollback()
    thread.join()
    reason = "the job is dead: it won't run again unless it is redriven"
    assert answers == [[cancelled(job_id) if commit else stayed(job_id, JobStatus.DEAD, reason)]]


def test_a_job_that_is_deleted_meanwhile(engine: Engine, first: Connection) -> None:
    """A row that is gone when its lock is free is no job any more."""
    job_id = add_job(engine)
    first.execute(delete(jobs).where(jobs.c.id == job_id))
    thread, answers = in_thread(lambda: cancel_and_commit(engine, job_id))
    wait_for_a_lock(engine)
    first.commit()
    thread.join()
    assert answers == [[stayed(job_id, None, "no such job")]]


def test_a_foreign_key_on_the_job_is_in_nobodys_way(engine: Engine, first: Connection) -> None:
    """An application that has just stored a row which points at the job holds its key alone."""
    job_id = add_job(engine)
    first.execute(text("SELECT id FROM jobqueue_jobs WHERE id = :id FOR KEY SHARE"), {"id": job_id})
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '1s'"))
        assert cancel(connection, [job_id]) == [cancelled(job_id)]
