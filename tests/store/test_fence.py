"""The fence: a completion in somebody else's transaction, which waits for its row and then decides by what it finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, create_engine, func, select, text, update
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing, Progress
from sa_jobqueue.statements import fence as statement
from sa_jobqueue.store.fencing import has_written, is_in_force, send_fence
from sa_jobqueue.store.store import Store
from sa_jobqueue.store.trouble import snapshot_too_old
from tests.support.jobs import MINUTE, add_running, change, keyed, read_job
from tests.support.locks import in_thread, wait_for_a_lock
from tests.support.waiting import wait_until

SETTING = text("SELECT current_setting('idle_in_transaction_session_timeout')")


def fence(
    connection: Connection,
    job_id: int,
    token: UUID,
    *,
    lease: timedelta = MINUTE,
    result: str | None = None,
    progress: Progress | None = None,
) -> Landing:
    return send_fence(connection, (job_id, token), result=result, progress=progress, lease=lease).landing


def test_it_is_done_if_and_only_if_the_transaction_commits(engine: Engine, token: UUID) -> None:
    """All that a completion writes, and the number of the transaction that it stands in."""
    job_id = add_running(engine, token, **keyed("k"))
    with engine.connect() as connection:
        assert fence(connection, job_id, token) is Landing.LANDED
        connection.rollback()
        assert read_job(engine, job_id).status == "running"
        fenced = send_fence(connection, (job_id, token), result='{"pages": 3}', lease=MINUTE)
        assert fenced.xid == connection.scalar(text("SELECT pg_current_xact_id()::text::bigint"))
        connection.commit()
    row = read_job(engine, job_id)
    assert (row.status, row.result, row.settled_token) == ("done", {"pages": 3}, token)
    assert (row.lease_token, row.lease_until, row.leased_by, row.unique_key) == (None, None, None, None)
    assert row.finished_at is not None


def test_a_large_result_is_told_in_its_place(engine: Engine, token: UUID) -> None:
    """As of every completion."""
    job_id = add_running(engine, token)
    with engine.begin() as connection:
        assert fence(connection, job_id, token, result=f'"{"x" * 70_000}"') is Landing.LANDED
    assert read_job(engine, job_id).result == {"dropped": "result too large", "bytes": 70_002}


@pytest.mark.parametrize(
    ("columns", "landing"),
    [
        ({"lease_token": uuid4()}, Landing.LOST),
        ({"lease_until": func.clock_timestamp()}, Landing.EXPIRED),
    ],
)
def test_what_is_not_ours_is_left_alone(
    engine: Engine, token: UUID, columns: dict[str, Any], landing: Landing
) -> None:
    """Told why, and the transaction stays usable."""
    job_id = add_running(engine, token)
    change(engine, job_id, **columns)
    before = read_job(engine, job_id)
    with engine.begin() as connection:
        assert fence(connection, job_id, token) is landing
        assert connection.scalar(select(1)) == 1
        assert fence(connection, job_id + 1, token) is Landing.GONE
    assert read_job(engine, job_id) == before


def test_an_expired_lease_is_past_within_a_long_transaction(engine: Engine, token: UUID) -> None:
    """The clock goes on where now() stands still."""
    job_id = add_running(engine, token)
    with engine.begin() as connection:
        connection.execute(select(func.now()))
        change(engine, job_id, lease_until=func.clock_timestamp() + timedelta(milliseconds=1))
        wait_until(lambda: read_time(engine) > read_job(engine, job_id).lease_until)
        assert fence(connection, job_id, token) is Landing.EXPIRED


def read_time(engine: Engine) -> Any:
    with engine.connect() as connection:
        return connection.scalar(select(func.clock_timestamp()))


# What somebody who has the row locked does with it while the fence waits, and what the fence finds.
MEANWHILE: dict[str, tuple[Callable[[Connection, int], Any], Landing]] = {
    "nothing": (lambda *_: None, Landing.LANDED),
    "a harmless change": (
        lambda connection, job_id: write(connection, job_id, cancel_requested_at=func.now()),
        Landing.LANDED,
    ),
    "a renewal": (
        lambda connection, job_id: write(connection, job_id, lease_until=func.now() + 2 * MINUTE),
        Landing.LANDED,
    ),
    "taken over": (
        lambda connection, job_id: write(connection, job_id, lease_token=uuid4()),
        Landing.LOST,
    ),
    "expired": (
        lambda connection, job_id: write(connection, job_id, lease_until=func.now()),
        Landing.EXPIRED,
    ),
    "deleted": (
        lambda connection, job_id: connection.execute(jobs.delete().where(jobs.c.id == job_id)),
        Landing.GONE,
    ),
}


def write(connection: Connection, job_id: int, **columns: Any) -> None:
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(**columns))


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_locked_row_is_waited_for(engine: Engine, token: UUID, meanwhile: str, end: str) -> None:
    """It decides by the row as the wait has left it."""
    act, landing = MEANWHILE[meanwhile]
    job_id = add_running(engine, token)

    def fencing() -> Landing:
        with engine.begin() as connection:
            return fence(connection, job_id, token)

    with engine.connect() as other:
        other.execute(select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
        act(other, job_id)
        thread, answers = in_thread(fencing)
        wait_for_a_lock(engine)
        getattr(other, end)()
    thread.join()
    landing = landing if end == "commit" else Landing.LANDED
    assert answers == [landing]
    with engine.connect() as connection:
        done = connection.scalar(select(func.count()).select_from(jobs).where(jobs.c.status == "done"))
    assert done == (landing is Landing.LANDED)


def test_a_lease_that_runs_out_during_the_wait_is_past(engine: Engine, token: UUID) -> None:
    """Who was waited for has changed nothing: the lease is looked at again all the same."""
    job_id = add_running(engine, token, lease=timedelta(seconds=2))

    def fencing() -> Landing:
        with engine.begin() as connection:
            return fence(connection, job_id, token)

    with engine.connect() as other:
        other.execute(select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
        thread, answers = in_thread(fencing)
        wait_for_a_lock(engine)
        assert read_time(engine) < read_job(engine, job_id).lease_until  # the fence came in time
        wait_until(lambda: read_time(engine) > read_job(engine, job_id).lease_until)
        other.rollback()
    thread.join()
    assert answers == [Landing.EXPIRED]
    assert read_job(engine, job_id).status == "running"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_change_after_the_snapshot_is_a_serialization_failure(
    engine: Engine, token: UUID, level: Any
) -> None:
    """Told apart from other errors; the transaction can only be rolled back."""
    job_id = add_running(engine, token)
    with engine.connect().execution_options(isolation_level=level) as connection:
        connection.execute(select(1))
        change(engine, job_id, cancel_requested_at=func.now())
        with pytest.raises(DBAPIError) as raised:
            fence(connection, job_id, token)
        assert snapshot_too_old(raised.value)
        connection.rollback()
        assert fence(connection, job_id, token) is Landing.LANDED


def test_the_last_progress_comes_with_it(engine: Engine, token: UUID) -> None:
    """In the same transaction, or not at all."""
    job_id = add_running(engine, token)
    for end in ("rollback", "commit"):
        with engine.connect() as connection:
            assert fence(connection, job_id, token, progress=Progress(0.9, "page 12")) is Landing.LANDED
            getattr(connection, end)()
        told = read_job(engine, job_id).progress
        assert (told is None) if end == "rollback" else (told["fraction"], told["text"]) == (0.9, "page 12")


@pytest.mark.parametrize("refusal", ["a trigger", "a missing column", "a lock"])
def test_progress_that_can_not_be_written_costs_no_completion(
    engine: Engine, token: UUID, refusal: str
) -> None:
    """Nor the handler's transaction: the fence goes its way."""
    job_id = add_running(engine, token)
    with engine.begin() as connection:
        if refusal == "a trigger":
            connection.exec_driver_sql("ALTER TABLE jobqueue_jobs ADD CHECK (progress IS NULL)")
        elif refusal == "a missing column":
            connection.exec_driver_sql("ALTER TABLE jobqueue_jobs RENAME progress TO elsewhere")
    with engine.connect() as connection, engine.connect() as other:
        if refusal == "a lock":
            other.execute(select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
        thread, answers = in_thread(lambda: fence(connection, job_id, token, progress=Progress(0.9, None)))
        if refusal == "a lock":
            wait_for_a_lock(engine)
            other.rollback()
        thread.join()
        assert answers == [Landing.LANDED]
        connection.commit()


def test_errors_hold_no_values(engine: Engine, token: UUID) -> None:
    """A result that somebody's trigger refuses is in no log."""
    job_id = add_running(engine, token)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobqueue_jobs ADD CHECK (result <> '\"secret\"')")
    with engine.connect() as connection, pytest.raises(DBAPIError) as raised:
        fence(connection, job_id, token, result='"secret"')
    assert "secret" not in str(raised.value).replace("result <> ", "")


def test_a_database_without_the_table_is_named(empty_database_url: str, token: UUID) -> None:
    """Not taken for a job that is gone."""
    elsewhere = create_engine(empty_database_url)
    with (
        elsewhere.connect() as connection,
        pytest.raises(ConfigurationError, match="bound to a database without the queue's tables"),
    ):
        fence(connection, 1, token)
    elsewhere.dispose()


def test_what_stands_and_what_was_written_is_read(engine: Engine, token: UUID) -> None:
    """A savepoint takes a fence back; a failed transaction says so; reading alone writes nothing."""
    job_id = add_running(engine, token)
    key = (job_id, token)
    with engine.connect() as connection:
        assert not has_written(connection)
        assert not is_in_force(connection, key)
        savepoint = connection.begin_nested()
        fence(connection, job_id, token)
        assert is_in_force(connection, key)
        savepoint.rollback()
        assert not is_in_force(connection, key)
        assert has_written(connection)
        connection.rollback()
        assert not has_written(connection)
        fence(connection, job_id, token)
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT 1 / 0")
        with pytest.raises(DBAPIError, match="current transaction is aborted"):
            is_in_force(connection, key)


@pytest.mark.parametrize(
    ("held", "lease", "expected"),
    [
        ("0", timedelta(seconds=90), "90s"),
        ("5min", timedelta(seconds=90), "90s"),
        ("70ms", timedelta(seconds=90), "70ms"),
        ("2s", timedelta(seconds=90), "2s"),
        ("0", timedelta(days=3650), "24d"),
        ("0", timedelta(microseconds=1), "1ms"),
    ],
)
def test_from_the_fence_on_silence_is_bounded(
    engine: Engine, token: UUID, held: str, lease: timedelta, expected: str
) -> None:
    """By one lease, or by what holds already and is less."""
    job_id = add_running(engine, token)
    given = {"job_id": job_id, "token": token, "result_text": None, "lease": lease}
    with engine.connect() as connection:
        connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = '{held}'")
        connection.exec_driver_sql("SET intervalstyle = 'iso_8601'")
        connection.commit()
        assert connection.execute(statement.fence(), given).one().silence == expected
        connection.invalidate()  # the server may have ended it by now


def test_silence_is_bounded_for_the_transaction_alone(engine: Engine, token: UUID) -> None:
    """A connection that goes back to its pool is as it was."""
    job_id = add_running(engine, token)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = '5min'")
        connection.commit()
        fence(connection, job_id, token, lease=timedelta(seconds=90))
        assert connection.scalar(SETTING) == "90s"
        connection.rollback()
        assert connection.scalar(SETTING) == "5min"
        connection.invalidate()


def test_a_silent_client_does_not_keep_the_row(engine: Engine, store: Store, token: UUID) -> None:
    """The server ends it one lease after its fence: the job can be renewed, rescued or done again."""
    job_id = add_running(engine, token)
    with engine.connect() as connection:
        fence(connection, job_id, token, lease=timedelta(milliseconds=300))
        assert store.renew([(job_id, token)], lease=MINUTE)[0].landing is Landing.BUSY
        wait_until(lambda: store.renew([(job_id, token)], lease=MINUTE)[0].landing is Landing.LANDED)
        with pytest.raises(DBAPIError, match="idle-in-transaction timeout"):
            connection.execute(select(1))
    assert read_job(engine, job_id).status == "running"
