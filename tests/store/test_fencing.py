"""A late owner writes nothing, a locked row holds back nobody, a bad row neither."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, Row, func, select, text, update
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.statements import renew, settle
from sa_jobqueue.states import Verb
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_running, change, read_job, refuse

HOUR = timedelta(hours=1)
SETTLING = list(settle.SETTLING)
FIELDS = {"delay": HOUR, "error": "late", "reason": "late", "result": '"late"'}


def taken_over(engine: Engine, token: UUID) -> tuple[int, Row[object]]:
    """A job whose lease ran out and which another owner holds now; and its row."""
    job_id = add_running(engine, token)
    change(
        engine,
        job_id,
        lease_token=uuid4(),
        lease_until=func.now() + HOUR,
        leased_by="b",
        attempts=2,
        last_error="runner a was lost (lease expired)",
    )
    return job_id, read_job(engine, job_id)


@pytest.mark.parametrize("verb", SETTLING)
def test_a_late_token_changes_nothing(engine: Engine, store: Store, token: UUID, verb: Verb) -> None:
    """Whatever a runner that lost its job sends, the row stays as the new owner left it, and the runner is told."""
    job_id, before = taken_over(engine, token)
    assert [answer.landing for answer in store.renew([(job_id, token)], lease=HOUR)] == [Landing.LOST]
    assert [answer.landing for answer in store.settle([Settlement(job_id, token, verb, **FIELDS)])] == [
        Landing.LOST
    ]
    assert read_job(engine, job_id) == before
    new = before.lease_token
    assert store.settle([Settlement(job_id, new, Verb.COMPLETE)])[0].landing is Landing.LANDED


def test_a_late_token_leaves_the_transaction_usable(engine: Engine, token: UUID) -> None:
    """All late writes in one transaction of the caller: none lands, none aborts it."""
    job_id, before = taken_over(engine, token)
    arrays = {"ids": [job_id], "tokens": [token]}
    fields = {"delays": [HOUR], "error_texts": ["late"], "reason_texts": ["late"], "result_texts": ["1"]}
    with engine.begin() as connection:
        assert connection.execute(renew.renew(), {**arrays, "lease": HOUR}).all() == []
        for statement, _ in settle.SETTLING.values():
            assert connection.execute(statement(), {**arrays, **fields}).all() == []
        assert connection.execute(select(jobs.c.leased_by)).scalar_one() == "b"
    assert read_job(engine, job_id) == before


@pytest.mark.parametrize("verb", SETTLING)
def test_a_busy_row_is_skipped_and_its_neighbours_land(
    engine: Engine, store: Store, token: UUID, verb: Verb
) -> None:
    """An application's lock on one job stops that one alone, without waiting; after its commit the job settles."""
    first, locked, last = (add_running(engine, token) for _ in range(3))
    batch = [Settlement(job_id, token, verb, **FIELDS) for job_id in (first, locked, last)]
    before = read_job(engine, locked)
    with engine.begin() as application:
        application.execute(select(jobs.c.id).where(jobs.c.id == locked).with_for_update())
        landings = [answer.landing for answer in store.settle(batch)]
        assert landings == [Landing.LANDED, Landing.BUSY, Landing.LANDED]
        assert read_job(engine, locked) == before
    assert [answer.landing for answer in store.settle([batch[1]])] == [Landing.LANDED]


def test_whoever_comes_second_finds_the_token_gone(engine: Engine, store: Store, token: UUID) -> None:
    """While a rescue is uncommitted the old owner's completion is told busy; after the commit it is lost."""
    job_id = add_running(engine, token)

    def rescue_without_commit(connection: Connection) -> None:
        ready = {"status": "ready", "lease_token": None, "lease_until": None}
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**ready))

    with engine.begin() as rescuer:
        rescue_without_commit(rescuer)
        assert store.settle([Settlement(job_id, token, Verb.COMPLETE)])[0].landing is Landing.BUSY
    assert store.settle([Settlement(job_id, token, Verb.COMPLETE)])[0].landing is Landing.LOST
    assert read_job(engine, job_id).status == "ready"


def test_a_completion_needs_its_lease(engine: Engine, store: Store, token: UUID) -> None:
    """Past its lease a job may be taken any moment: the completion is told expired, and lands after a renewal."""
    job_id = add_running(engine, token, lease=-MINUTE)
    settlement = Settlement(job_id, token, Verb.COMPLETE)
    assert store.settle([settlement])[0].landing is Landing.EXPIRED
    assert read_job(engine, job_id).status == "running"
    store.renew([(job_id, token)], lease=MINUTE)
    assert store.settle([settlement])[0].landing is Landing.LANDED


@pytest.mark.parametrize("verb", [verb for verb in SETTLING if verb is not Verb.COMPLETE])
def test_other_outcomes_need_the_token_alone(engine: Engine, store: Store, token: UUID, verb: Verb) -> None:
    """A failure that nobody has taken over may be written down late: it frees the job sooner than a rescue."""
    job_id = add_running(engine, token, lease=-MINUTE)
    assert store.settle([Settlement(job_id, token, verb, **FIELDS)])[0].landing is Landing.LANDED


def test_a_settled_job_stays_settled(engine: Engine, store: Store, token: UUID) -> None:
    """The same outcome sent twice lands once; the second time it is lost, and after a delete it is gone."""
    job_id = add_running(engine, token)
    settlement = Settlement(job_id, token, Verb.COMPLETE)
    assert store.settle([settlement])[0].landing is Landing.LANDED
    before = read_job(engine, job_id)
    assert store.settle([settlement])[0].landing is Landing.LOST
    assert read_job(engine, job_id) == before
    with engine.begin() as connection:
        connection.execute(jobs.delete())
    assert store.settle([settlement])[0].landing is Landing.GONE


@pytest.mark.parametrize(
    "bad",
    [
        {"error": "a\0b"},
        {"error": "\udcff"},
        {"reason": "a\0b", "verb": Verb.DISCARD},
        {"delay": timedelta.max},
        {"result": '"\\u0000"', "verb": Verb.COMPLETE},
        {"result": "no json", "verb": Verb.COMPLETE},
        {"result": "[" * 50_000, "verb": Verb.COMPLETE},
    ],
    ids=["NUL", "surrogate", "NUL in reason", "endless delay", "NUL in JSON", "no JSON", "deep JSON"],
)
def test_a_bad_row_does_not_hold_back_its_neighbours(
    engine: Engine, store: Store, token: UUID, bad: dict[str, object]
) -> None:
    """An outcome that PostgreSQL can't store is settled without its details and says so; the others are as given."""
    outcome = {"verb": Verb.RETRY, **bad}
    good = {"verb": outcome["verb"], "delay": MINUTE, "error": "good", "reason": "good", "result": '"good"'}
    ids = [add_running(engine, token) for _ in range(7)]
    batch = [
        Settlement(job_id, token, **(outcome if place == 4 else good)) for place, job_id in enumerate(ids)
    ]
    settled = store.settle(batch)
    assert [answer.landing for answer in settled] == [Landing.LANDED] * 7
    assert [answer.id for answer in settled] == ids
    assert [place for place, answer in enumerate(settled) if answer.fault] == [4]
    assert read_job(engine, ids[4]).status == settled[4].status != "running"
    if outcome["verb"] is not Verb.COMPLETE:
        assert read_job(engine, ids[3]).last_error == "good"
    if "error" in bad:
        assert "could not be stored" in read_job(engine, ids[4]).last_error


@pytest.mark.parametrize("sqlstate", ["P0001", "JQ001", "42501", "40001", "55000", "XX000"])
def test_whatever_refuses_one_outcome_holds_back_no_other(
    engine: Engine, store: Store, token: UUID, sqlstate: str
) -> None:
    """A trigger chooses its SQLSTATE itself: its row stays ours and tells it, all others land in the same call."""
    ids = [add_running(engine, token) for _ in range(30)]
    refuse(engine, ids[7], f"RAISE 'no' USING ERRCODE = '{sqlstate}'", when="new.status = 'done'")
    settled = store.settle([Settlement(job_id, token, Verb.COMPLETE) for job_id in ids])
    assert [place for place, answer in enumerate(settled) if answer.landing is not Landing.LANDED] == [7]
    assert settled[7].landing is Landing.BUSY
    assert settled[7].fault is not None
    assert settled[7].fault.endswith(f"SQLSTATE {sqlstate}")
    assert read_job(engine, ids[7]).status == "running"


def test_a_row_that_takes_too_long_holds_back_no_other(engine: Engine, store: Store, token: UUID) -> None:
    """The statement_timeout that ends the batch is the slow row's alone, and its details are kept for the next try."""
    ids = [add_running(engine, token) for _ in range(5)]
    refuse(engine, ids[2], "PERFORM pg_sleep(60)", when="new.status = 'done'")
    store._connection.rows(text("SELECT set_config('statement_timeout', '100ms', false)"))
    batch = [Settlement(job_id, token, Verb.COMPLETE, result="7") for job_id in ids]
    settled = store.settle(batch)
    assert [place for place, answer in enumerate(settled) if answer.landing is not Landing.LANDED] == [2]
    assert (settled[2].landing, settled[2].fault) == (Landing.BUSY, "QueryCanceled, SQLSTATE 57014")
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER refuse ON jobqueue_jobs")
    assert store.settle([batch[2]])[0].landing is Landing.LANDED
    assert read_job(engine, ids[2]).result == 7


@pytest.mark.parametrize("sqlstate", ["25006", "53100"])
def test_when_nobody_could_write_nothing_is_tried_in_pieces(
    engine: Engine, store: Store, token: UUID, sqlstate: str
) -> None:
    """A full disk or a read-only server is no row's fault: the batch fails as a whole, and is sent again as a whole."""
    ids = [add_running(engine, token) for _ in range(3)]
    refuse(engine, ids[2], f"RAISE 'no' USING ERRCODE = '{sqlstate}'")
    with pytest.raises(DBAPIError):
        store.settle([Settlement(job_id, token, Verb.COMPLETE) for job_id in ids])
    assert {read_job(engine, job_id).status for job_id in ids} == {"running"}


def test_a_refused_outcome_of_a_job_that_is_not_ours_is_lost(
    engine: Engine, store: Store, token: UUID
) -> None:
    """What can't even be sent is judged by its row like everything else: nobody tries it for ever."""
    job_id, before = taken_over(engine, token)
    settlement = Settlement(job_id, token, Verb.COMPLETE, result="no json")
    assert store.settle([settlement])[0].landing is Landing.LOST
    assert read_job(engine, job_id) == before


def test_a_row_that_the_database_refuses_stays_ours(engine: Engine, store: Store, token: UUID) -> None:
    """Somebody's constraint refuses one outcome in every form: it is told with the reason, its neighbours land."""
    ids = [add_running(engine, token) for _ in range(3)]
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"ALTER TABLE jobqueue_jobs ADD CONSTRAINT theirs CHECK (id <> {ids[1]} OR status = 'running')"
        )
    settled = store.settle([Settlement(job_id, token, Verb.COMPLETE) for job_id in ids])
    assert [(answer.landing, answer.fault) for answer in settled] == [
        (Landing.LANDED, None),
        (Landing.BUSY, "CheckViolation, SQLSTATE 23514, constraint theirs"),
        (Landing.LANDED, None),
    ]
