"""Rows that the database lets nobody write: who hears of it, and what goes on around them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, ProgrammingError

from sa_jobqueue.records import Settlement
from sa_jobqueue.states import Verb
from sa_jobqueue.store.pieces import PROBES
from sa_jobqueue.store.store import Store
from sa_jobqueue.store.trouble import nothing_landed
from tests.support.jobs import MINUTE, add_job, add_running, read_job, refuse

NONE, HOUR = timedelta(0), timedelta(hours=1)
Refused = list[tuple[int, str, str]]


@pytest.fixture
def told() -> Refused:
    """Rows that were refused: id, verb and fault, as the store reports them."""
    return []


@pytest.fixture
def telling(engine: Engine, told: Refused) -> Iterator[Store]:
    """A store that reports refused rows."""
    store = Store(engine, name="runner-1", on_refused=lambda *refused: told.append(refused))
    yield store
    store.close()


def claim_ids(store: Store, quotas: dict[str, int]) -> list[int]:
    return [job.id for job in store.claim(token=uuid4(), quotas=quotas, kinds=["test"], lease=MINUTE)]


def forbid(engine: Engine, level: str) -> None:
    """Nobody changes any row, or makes any statement that would."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'nobody'; END $$"
        )
        connection.exec_driver_sql(
            f"CREATE TRIGGER forbid BEFORE UPDATE ON jobqueue_jobs FOR EACH {level} EXECUTE FUNCTION forbid()"
        )


def test_a_row_that_nobody_can_claim_is_told_and_left_alone(
    engine: Engine, telling: Store, told: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that stands still for a row's sake does not look like a broken database, and must not look empty."""
    job_id = add_job(engine)
    refuse(engine, job_id, "RAISE 'no' USING ERRCODE = 'JQ001'")
    fault = (job_id, "claim", "DatabaseError, SQLSTATE JQ001")
    assert claim_ids(telling, {"default": 3}) == []
    assert told == [fault]
    late = add_job(engine)
    assert claim_ids(telling, {"default": 3}) == [late]
    assert claim_ids(telling, {"default": 3}) == []
    assert told == [fault]
    monkeypatch.setattr("sa_jobqueue.store.refusals.time.monotonic", lambda: float("inf"))
    assert claim_ids(telling, {"default": 3}) == []
    assert told == [fault, fault]
    assert (read_job(engine, job_id).status, read_job(engine, job_id).attempts) == ("ready", 0)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER refuse ON jobqueue_jobs")
    assert claim_ids(telling, {"default": 3}) == [job_id]


@pytest.mark.parametrize("rows", [1, PROBES + 1])
def test_what_no_row_can_be_blamed_for_is_raised(
    engine: Engine, telling: Store, told: Refused, rows: int
) -> None:
    """A right is missing: nobody can claim, and the database's own error says so, again and again."""
    ids = [add_job(engine) for _ in range(rows)]
    forbid(engine, "STATEMENT")
    for _ in range(2):
        with pytest.raises(DBAPIError, match="nobody") as caught:
            claim_ids(telling, {"default": 3})
        assert nothing_landed(caught.value)
    assert {read_job(engine, job_id).status for job_id in ids} == {"ready"}


def test_so_many_refused_rows_are_no_rows_fault(engine: Engine, telling: Store, told: Refused) -> None:
    """Each alone is refused: the error is raised, also when all of them are known already."""
    for _ in range(PROBES):
        add_job(engine)
    forbid(engine, "ROW")
    for _ in range(2):
        with pytest.raises(DBAPIError, match="nobody"):
            claim_ids(telling, {"default": 3})
    assert len(told) == PROBES


def test_what_came_at_a_bad_time_is_raised(engine: Engine, telling: Store, told: Refused) -> None:
    """A refusal that passes by itself is nobody's fault, and the row is worth the next try."""
    job_id = add_job(engine)
    refuse(engine, job_id, "RAISE 'again' USING ERRCODE = '40001'")
    with pytest.raises(DBAPIError, match="again"):
        claim_ids(telling, {"default": 3})
    assert told == []
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER refuse ON jobqueue_jobs")
    assert claim_ids(telling, {"default": 3}) == [job_id]


def test_renewals_rescues_and_releases_tell_too(
    engine: Engine, telling: Store, told: Refused, token: UUID
) -> None:
    """Each names the row, the verb and the fault; what landed is not told."""
    held = [add_running(engine, token) for _ in range(3)]
    lost = [add_running(engine, uuid4(), lease=-HOUR) for _ in range(2)]
    refuse(engine, held[1], "RAISE 'no' USING ERRCODE = 'JQ001'")
    telling.renew([(job_id, token) for job_id in held], lease=MINUTE)
    telling.release_claim(token=token)
    fault = "DatabaseError, SQLSTATE JQ001"
    assert told == [(held[1], "renew", fault), (held[1], "release", fault)]
    told.clear()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER refuse ON jobqueue_jobs; DROP FUNCTION refuse")
    refuse(engine, lost[0], "RAISE 'no' USING ERRCODE = 'JQ001'")
    leases = telling.expired_leases(lease=NONE, margin=NONE, limit=9)
    telling.rescue([(lease, NONE) for lease in leases], margin=NONE)
    assert told == [(lost[0], "rescue", fault)]
    assert [read_job(engine, job_id).status for job_id in lost] == ["running", "ready"]


def test_a_statement_that_can_not_be_right_is_raised(
    engine: Engine, telling: Store, told: Refused, token: UUID
) -> None:
    """A column is gone: with one job or two in hand each verb says so, instead of blaming those jobs for ever."""
    held = [add_running(engine, token) for _ in range(2)]
    add_running(engine, uuid4(), lease=-HOUR)
    leases = telling.expired_leases(lease=NONE, margin=NONE, limit=9)
    due = [add_job(engine)]
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobqueue_jobs RENAME COLUMN updated_at TO other")
    for call in (
        lambda: telling.settle([Settlement(held[0], token, Verb.COMPLETE)]),
        lambda: telling.renew([(job_id, token) for job_id in held], lease=MINUTE),
        lambda: telling.rescue([(lease, NONE) for lease in leases], margin=NONE),
        lambda: telling.postpone(due, shortest=MINUTE, longest=HOUR),
        lambda: telling.release_claim(token=token),
    ):
        with pytest.raises(ProgrammingError, match="updated_at"):
            call()
    assert told == []
