"""Renewals: which leases live on, and what the keeper of the others is told."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import Engine, func, select

from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing, Renewed
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, add_running, change, read_job, refuse, server_time

HOUR = timedelta(hours=1)


def test_a_renewal_extends_the_lease_and_nothing_else(engine: Engine, store: Store, token: UUID) -> None:
    """The lease ends one lease after the renewal; attempts, owner and the rest stay."""
    job_id = add_running(engine, token)
    before = read_job(engine, job_id)
    assert store.renew([(job_id, token)], lease=HOUR) == [Renewed(job_id, token, Landing.LANDED)]
    after = read_job(engine, job_id)
    assert after.lease_until == after.updated_at + HOUR
    changed = {name for name in before._fields if getattr(before, name) != getattr(after, name)}
    assert changed == {"lease_until", "updated_at"}


def test_a_renewal_never_shortens_a_lease(engine: Engine, store: Store, token: UUID) -> None:
    """Two renewals may land in either order: the longer one counts."""
    job_id = add_running(engine, token, lease=HOUR)
    before = read_job(engine, job_id).lease_until
    store.renew([(job_id, token)], lease=MINUTE)
    assert read_job(engine, job_id).lease_until == before


def test_a_renewal_revives_an_expired_lease_that_nobody_took(
    engine: Engine, store: Store, token: UUID
) -> None:
    """An outage of the client costs nothing as long as no rescue came in between."""
    job_id = add_running(engine, token, lease=-HOUR)
    assert store.renew([(job_id, token)], lease=MINUTE)[0].landing is Landing.LANDED
    assert read_job(engine, job_id).lease_until > server_time(engine)


def test_a_request_for_cancellation_travels_with_the_renewal(
    engine: Engine, store: Store, token: UUID
) -> None:
    """What an operator asked for reaches the holder with its next renewal."""
    asked, other = add_running(engine, token, cancel_requested_at=func.now()), add_running(engine, token)
    renewed = store.renew([(other, token), (asked, token)], lease=MINUTE)
    assert [(answer.id, answer.cancel_requested) for answer in renewed] == [(other, False), (asked, True)]


def test_each_miss_has_its_own_name(engine: Engine, store: Store, token: UUID) -> None:
    """A row locked by an application is busy, one with another owner lost, one that was deleted gone."""
    mine, locked, taken, settled = (add_running(engine, token) for _ in range(4))
    change(engine, taken, lease_token=uuid4())
    change(engine, settled, status="ready", lease_token=None, lease_until=None, settled_token=token)
    ids = [10**9, settled, taken, locked, mine]
    with engine.begin() as application:
        application.execute(select(jobs.c.id).where(jobs.c.id == locked).with_for_update())
        before = {job_id: read_job(engine, job_id) for job_id in ids[1:4]}
        renewed = store.renew([(job_id, token) for job_id in ids], lease=HOUR)
    assert [answer.id for answer in renewed] == ids
    assert [str(answer.landing) for answer in renewed] == ["gone", "lost", "lost", "busy", "landed"]
    assert {job_id: read_job(engine, job_id) for job_id in before} == before
    assert store.renew([(locked, token)], lease=HOUR)[0].landing is Landing.LANDED


def test_a_foreign_key_is_no_obstacle(engine: Engine, store: Store, token: UUID) -> None:
    """An application's row that points at the job holds KEY SHARE, which stops neither renewal nor completion."""
    job_id = add_running(engine, token)
    with engine.begin() as application:
        application.execute(
            select(jobs.c.id).where(jobs.c.id == job_id).with_for_update(read=True, key_share=True)
        )
        assert store.renew([(job_id, token)], lease=HOUR)[0].landing is Landing.LANDED


def test_held_is_id_and_token(engine: Engine, store: Store, token: UUID) -> None:
    """The same job under two tokens in one batch: only the token of the row is renewed."""
    job_id, stale = add_running(engine, token), uuid4()
    renewed = store.renew([(job_id, stale), (job_id, token)], lease=HOUR)
    assert [answer.landing for answer in renewed] == [Landing.LOST, Landing.LANDED]


def test_nothing_held_nothing_sent(engine: Engine, store: Store) -> None:
    """A keeper without jobs sends no statement."""
    add_job(engine)
    assert store.renew([], lease=MINUTE) == []
    assert store._connection._connection is None


def test_a_renewal_that_is_refused_costs_no_other_lease(engine: Engine, store: Store, token: UUID) -> None:
    """Somebody's trigger stops one row: that one is busy, all other leases of the runner live on."""
    ids = [add_running(engine, token) for _ in range(7)]
    refuse(engine, ids[2], "RAISE 'no'")
    renewed = store.renew([(job_id, token) for job_id in ids], lease=HOUR)
    assert [answer.id for answer in renewed] == ids
    assert [place for place, answer in enumerate(renewed) if answer.landing is not Landing.LANDED] == [2]
    assert renewed[2].landing is Landing.BUSY
    now = server_time(engine)
    assert [
        place for place, job_id in enumerate(ids) if read_job(engine, job_id).lease_until < now + 30 * MINUTE
    ] == [2]
