"""Rescue: which leases count as lost, and what becomes of their jobs."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, func, select, text

from sa_jobqueue.models import jobs
from sa_jobqueue.records import ExpiredLease, Landing, Rescued
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, add_running, change, keyed, read_job, refuse

HOUR = timedelta(hours=1)
NONE = timedelta(0)


def lost(store: Store, *, limit: int = 100) -> list[ExpiredLease]:
    return store.expired_leases(lease=NONE, margin=NONE, limit=limit)


def test_expired_leases(engine: Engine, store: Store, token: UUID) -> None:
    """Only running jobs whose lease is past by more than the margin are listed, the longest past first."""
    add_job(engine)
    add_running(engine, token)
    late = add_running(engine, token, lease=-MINUTE)
    columns = {"kind": "k", "queue": "q", "attempts": 4, "returned": 1, "max_attempts": 9}
    latest = add_running(engine, token, lease=-HOUR, **columns)
    assert [lease.id for lease in lost(store)] == [latest, late]
    assert lost(store, limit=1) == [
        ExpiredLease(
            id=latest,
            token=token,
            kind="k",
            queue="q",
            attempts=4,
            returned=1,
            max_attempts=9,
            leased_by="holder",
        )
    ]
    assert [lease.id for lease in store.expired_leases(lease=NONE, margin=10 * MINUTE, limit=9)] == [latest]


def test_no_rescue_within_one_lease_of_the_servers_start(engine: Engine, store: Store, token: UUID) -> None:
    """After an outage of the server every runner has one lease of time to come back and renew."""
    job_id = add_running(engine, token, lease=-HOUR)
    with engine.connect() as connection:
        age = connection.execute(select(func.now() - func.pg_postmaster_start_time())).scalar_one()
    assert store.expired_leases(lease=age + HOUR, margin=NONE, limit=9) == []
    assert [lease.id for lease in store.expired_leases(lease=age / 2, margin=NONE, limit=9)] == [job_id]


def test_a_rescued_job_comes_back_later(engine: Engine, store: Store, token: UUID) -> None:
    """A job of a lost runner is due again after its delay; the attempt counts, the error names the runner."""
    job_id = add_running(engine, token, lease=-HOUR, settled_token=(earlier := uuid4()), **keyed("key"))
    before = read_job(engine, job_id)
    rescued = store.rescue([(lease, HOUR) for lease in lost(store)], margin=NONE)
    assert rescued == [Rescued(job_id, "test", "default", 1, JobStatus.READY, "holder")]
    after = read_job(engine, job_id)
    assert (after.status, after.run_at) == ("ready", after.updated_at + HOUR)
    assert after.last_error == "runner holder was lost (lease expired)"
    assert [(entry["attempt"], entry["verb"], entry["error"]) for entry in after.errors] == [
        (1, "rescue", after.last_error)
    ]
    assert after.settled_token == earlier
    assert {name for name in before._fields if getattr(before, name) != getattr(after, name)} == {
        *("status", "run_at", "lease_token", "lease_until", "leased_by"),
        *("last_error", "errors", "updated_at"),
    }


def test_a_rescue_without_attempts_left(engine: Engine, store: Store, token: UUID) -> None:
    """A job that kills its process again and again comes to rest in dead, its key free."""
    job_id = add_running(engine, token, lease=-HOUR, attempts=6, returned=1, leased_by=None, **keyed("key"))
    (rescued,) = store.rescue([(lost(store)[0], HOUR)], margin=NONE)
    row = read_job(engine, job_id)
    assert (rescued.status, row.status, row.reason) == (JobStatus.DEAD, "dead", "exhausted")
    assert rescued.counted_attempts == row.errors[-1]["attempt"] == 5
    assert (row.finished_at, row.unique_key) == (row.updated_at, None)
    assert row.last_error == "runner without a name was lost (lease expired)"


def test_a_rescue_after_a_request(engine: Engine, store: Store, token: UUID) -> None:
    """A job whose cancellation was asked for ends cancelled, also when it is exhausted, and keeps its error."""
    job_id = add_running(engine, token, lease=-HOUR, attempts=5, cancel_requested_at=func.now())
    (rescued,) = store.rescue([(lost(store)[0], HOUR)], margin=NONE)
    row = read_job(engine, job_id)
    assert (rescued.status, row.reason) == (JobStatus.CANCELLED, "cancelled")
    assert "was lost" in row.last_error


def test_a_renewal_in_between_wins(engine: Engine, store: Store, other: Store, token: UUID) -> None:
    """The owner came back between the look and the rescue: nothing happens."""
    job_id = add_running(engine, token, lease=-HOUR)
    leases = [(lease, HOUR) for lease in lost(other)]
    assert store.renew([(job_id, token)], lease=HOUR)[0].landing is Landing.LANDED
    before = read_job(engine, job_id)
    assert other.rescue(leases, margin=NONE) == []
    assert read_job(engine, job_id) == before


def test_the_margin_is_checked_again(engine: Engine, store: Store, token: UUID) -> None:
    """A lease that is past by less than the margin is left to its owner."""
    add_running(engine, token, lease=-MINUTE)
    leases = [(lease, HOUR) for lease in lost(store)]
    assert store.rescue(leases, margin=HOUR) == []
    assert len(store.rescue(leases, margin=NONE)) == 1


def test_two_rescues_of_one_job(engine: Engine, store: Store, other: Store, token: UUID) -> None:
    """Every runner rescues: of two that saw the same lease one acts, and a later owner is safe from the other."""
    job_id = add_running(engine, token, lease=-HOUR)
    seen = [(lease, NONE) for lease in lost(store)]
    assert [job.id for job in other.rescue(seen, margin=NONE)] == [job_id]
    assert store.rescue(seen, margin=NONE) == []
    store.claim(token=uuid4(), quotas={"default": 1}, kinds=["test"], lease=MINUTE)
    change(engine, job_id, lease_until=func.now() - HOUR)
    before = read_job(engine, job_id)
    assert store.rescue(seen, margin=NONE) == []
    assert read_job(engine, job_id) == before


def test_a_locked_job_is_left_for_the_next_round(engine: Engine, store: Store, token: UUID) -> None:
    """A rescue waits for nobody: the locked job is skipped, its neighbours are taken."""
    locked, free = (add_running(engine, token, lease=-HOUR) for _ in range(2))
    with engine.begin() as application:
        application.execute(select(jobs.c.id).where(jobs.c.id == locked).with_for_update())
        rescued = store.rescue([(lease, NONE) for lease in lost(store)], margin=NONE)
    assert [job.id for job in rescued] == [free]
    assert read_job(engine, locked).status == "running"


def test_nothing_lost_nothing_sent(store: Store) -> None:
    """An empty list sends no statement."""
    assert store.rescue([], margin=NONE) == []
    assert store._connection._connection is None


def test_a_rescue_that_is_refused_holds_back_no_other(engine: Engine, store: Store, token: UUID) -> None:
    """Somebody's trigger stops one row: the jobs of lost runners around it are taken back all the same."""
    ids = [add_running(engine, token, lease=-HOUR) for _ in range(7)]
    refuse(engine, ids[2], "RAISE 'no'")
    rescued = store.rescue([(lease, NONE) for lease in lost(store)], margin=NONE)
    assert [job.id for job in rescued] == [*ids[:2], *ids[3:]]
    assert read_job(engine, ids[2]).status == "running"


@pytest.mark.parametrize("errors", [{"odd": 1}, "odd", 7, None], ids=["object", "text", "number", "null"])
def test_errors_that_are_no_list_stop_no_rescue(
    engine: Engine, store: Store, token: UUID, errors: object
) -> None:
    """What other SQL put into `errors` gives way to a list, and the job goes on."""
    job_id = add_running(engine, token, lease=-HOUR)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE jobqueue_jobs SET errors = cast(:errors AS jsonb)"), {"errors": json.dumps(errors)}
        )
    assert len(store.rescue([(lost(store)[0], NONE)], margin=NONE)) == 1
    assert [entry["attempt"] for entry in read_job(engine, job_id).errors] == [1]
