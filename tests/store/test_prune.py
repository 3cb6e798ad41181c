"""Prune: what goes, what stays, and that nobody is waited for or stopped."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, event, func, insert, make_url, select, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import create_async_engine

from sa_jobqueue.admin import count_prunable, prune, redrive
from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing, Pruned, Settled, Settlement
from sa_jobqueue.statements.prune import prune_listed
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.pieces import PROBES
from sa_jobqueue.store.pruning import MOST_WAITS
from sa_jobqueue.store.store import Store
from tests.support.jobs import add_job, add_running, change, read_job

DAY, HOUR, NONE = timedelta(days=1), timedelta(hours=1), timedelta(0)
DONE, DEAD, CANCELLED = JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED


def add_finished(
    engine: Engine, count: int, *, status: str = "done", age: timedelta = DAY, apart: timedelta = HOUR
) -> list[int]:
    """Jobs that finished one after the other, the last one `age` ago; their ids, the oldest first."""
    statement = insert(jobs).returning(jobs.c.id)
    with engine.begin() as connection:
        return [
            connection.execute(
                statement.values(
                    kind="test", status=status, finished_at=func.now() - age - (count - 1 - n) * apart
                )
            ).scalar_one()
            for n in range(count)
        ]


def left(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(select(jobs.c.id).order_by(jobs.c.id)).scalars())


def sweep(store: Store, *, status: JobStatus = DONE, limit: int = 100, most: int = 50) -> list[Pruned]:
    """Batches until nothing more is promised."""
    batches = [store.prune(status=status, age=HOUR, limit=limit)]
    while batches[-1].more:
        assert len(batches) < most, "the sweep goes on without end"
        batches.append(store.prune(status=status, age=HOUR, limit=limit, position=batches[-1].position))
    return batches


def reference(engine: Engine, ids: list[int], on_delete: str = "") -> None:
    """An application's table that points at these jobs."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE documents (id bigint GENERATED ALWAYS AS IDENTITY, job_id bigint"
                f" REFERENCES jobqueue_jobs {on_delete})"
            )
        )
        if ids:
            connection.execute(
                text("INSERT INTO documents (job_id) VALUES (:id)"), [{"id": job_id} for job_id in ids]
            )


@contextmanager
def counted(engine: Engine) -> Iterator[list[str]]:
    """The deleting statements that are sent within the block."""
    seen: list[str] = []

    def note(*sent: Any) -> None:
        if "DELETE" in sent[2]:
            seen.append(sent[2])

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize("status", [DONE, DEAD, CANCELLED])
def test_only_what_is_finished_and_old_enough_goes(engine: Engine, store: Store, status: JobStatus) -> None:
    """Every terminal status has its own prune; nothing of another status goes, and nothing younger than the age."""
    token = {"lease_token": func.gen_random_uuid(), "lease_until": func.now() - DAY}
    add_job(engine, created_at=func.now() - 9 * DAY, run_at=func.now() - 9 * DAY)
    add_job(engine, status="running", attempts=1, created_at=func.now() - 9 * DAY, **token)
    finished = {
        (of, old): add_job(engine, status=of, finished_at=func.now() - (2 * HOUR if old else HOUR / 2))
        for of in (DONE, DEAD, CANCELLED)
        for old in (True, False)
    }
    before = left(engine)
    assert store.prune(status=status, age=HOUR, limit=100).count == 1
    assert left(engine) == [job_id for job_id in before if job_id != finished[status, True]]


def test_an_age_of_nothing_takes_all_that_is_finished(engine: Engine, store: Store) -> None:
    """A retention of zero is legal: what finished before the statement began goes."""
    add_finished(engine, 3, age=NONE, apart=NONE)
    assert store.prune(status=DONE, age=NONE, limit=100).count == 3


def test_the_oldest_go_first_and_no_more_than_a_batch(engine: Engine, store: Store) -> None:
    """A batch is bounded, its answer says that there is more, and the next one goes on where it ended."""
    ids = add_finished(engine, 5)
    first = store.prune(status=DONE, age=HOUR, limit=2)
    assert (first.count, first.refused, first.fault, first.more) == (2, 0, None, True)
    assert left(engine) == ids[2:]
    assert [batch.count for batch in sweep(store, limit=2)] == [2, 1]
    assert store.prune(status=DONE, age=HOUR, limit=2) == Pruned(0)


def test_jobs_that_finished_together_all_go(engine: Engine, store: Store) -> None:
    """After a mass cancellation thousands have the same time: the position between two batches loses none of them."""
    add_finished(engine, 25, status="cancelled", apart=NONE)
    assert [batch.count for batch in sweep(store, status=CANCELLED, limit=10)] == [10, 10, 5]
    assert left(engine) == []


def test_times_beyond_pythons_stop_nothing(engine: Engine, store: Store) -> None:
    """Other SQL may write infinity, which no Python date holds: that row goes or stays as any other."""
    add_job(engine, status="done", finished_at=text("'-infinity'"))
    late = add_job(engine, status="done", finished_at=text("'infinity'"))
    add_finished(engine, 3)
    assert sum(batch.count for batch in sweep(store, limit=1)) == 4
    assert left(engine) == [late]


LOCKS: dict[str, Callable[[Connection, int], Any]] = {
    "a row lock": lambda connection, job_id: connection.execute(
        select(jobs.c.id).where(jobs.c.id == job_id).with_for_update()
    ),
    # Its KEY SHARE lock stops no UPDATE, and would hold up a DELETE.
    "a foreign key being written": lambda connection, job_id: connection.execute(
        text("INSERT INTO documents (job_id) VALUES (:id)"), {"id": job_id}
    ),
    "a redrive": lambda connection, job_id: redrive(connection, [job_id]),
}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_locked_job_is_skipped(engine: Engine, store: Store, lock: str) -> None:
    """A prune waits for nobody: the locked job stays for a later one, its neighbours go."""
    reference(engine, [])
    ids = add_finished(engine, 3, status="dead")
    with engine.connect() as application:
        LOCKS[lock](application, ids[1])
        with counted(engine) as statements:
            batch = store.prune(status=DEAD, age=HOUR, limit=100)
        assert (batch.count, batch.refused, batch.more) == (2, 0, False)
        assert len(statements) == 1  # nor was a wait given up and the rest deleted around it
        assert left(engine) == [ids[1]]
        application.rollback()
    assert store.prune(status=DEAD, age=HOUR, limit=100).count == 1


def test_a_redriven_job_stays(engine: Engine, store: Store) -> None:
    """Sent back to ready, a job is nobody's to prune, by either way to delete it."""
    ids = add_finished(engine, 2, status="dead")
    with engine.begin() as person:
        redrive(person, ids[:1])
        assert store.prune(status=DEAD, age=HOUR, limit=1).count == 1
    before = read_job(engine, ids[0])
    parameters = {"ids": ids, "age": HOUR, "patience": None}
    assert store.prune(status=DEAD, age=HOUR, limit=100) == Pruned(0)
    assert store._connection.rows(prune_listed(DEAD), parameters) == []
    assert read_job(engine, ids[0]) == before


def test_two_pruners_share_the_work(engine: Engine, store: Store) -> None:
    """While one holds its batch the other takes the next one, and waits for nothing."""
    ids = add_finished(engine, 20)
    with engine.connect() as person:
        assert prune(person, status=DONE, older_than=HOUR, limit=10).count == 10
        with counted(engine) as statements:
            assert store.prune(status=DONE, age=HOUR, limit=10).count == 10
        assert len(statements) == 1
        person.rollback()
    assert left(engine) == ids[:10]


def test_a_lost_answer_after_the_prune_finds_the_job_gone(engine: Engine, store: Store, token: UUID) -> None:
    """With no retention at all the proof of a completion may be deleted before it is asked for: that is told as gone."""
    job_id = add_running(engine, token)
    completion = Settlement(job_id, token, Verb.COMPLETE)
    store.settle([completion])
    assert store.prune(status=DONE, age=NONE, limit=1).count == 1
    assert store.settle([completion], again=True) == [Settled(job_id, token, Landing.GONE)]


def test_a_job_that_an_application_points_at_stays_and_stops_nobody(engine: Engine, store: Store) -> None:
    """Its foreign key refuses the delete: that job is counted, told with the constraint, and passed over."""
    ids = add_finished(engine, 40)
    kept = [ids[0], ids[7], ids[39]]
    reference(engine, kept)
    batches = sweep(store, limit=10)
    assert left(engine) == kept
    assert [batch.count for batch in batches] == [8, 10, 10, 9, 0]
    assert [batch.refused for batch in batches] == [2, 0, 0, 1, 0]
    assert batches[0].fault == ("ForeignKeyViolation, SQLSTATE 23503, constraint documents_job_id_fkey")


def test_a_page_of_nothing_but_refusals_is_passed_over(engine: Engine, store: Store) -> None:
    """Where an application points at all its jobs, a page costs some probes, and the sweep goes on behind it."""
    kept = add_finished(engine, 100)
    reference(engine, kept)
    add_finished(engine, 5, age=2 * HOUR, apart=timedelta(minutes=1))
    with counted(engine) as statements:
        batch = store.prune(status=DONE, age=HOUR, limit=50)
    assert (batch.count, batch.refused, batch.more) == (0, 50, True)
    assert len(statements) <= 3 + PROBES
    assert sum(batch.count for batch in sweep(store, limit=50)) == 5
    assert left(engine) == kept


def test_somebodys_trigger_stops_one_job(engine: Engine, store: Store) -> None:
    """Whatever a trigger raises, the jobs around the one that it protects are deleted."""
    ids = add_finished(engine, 5)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION protect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF old.id = {ids[2]} THEN RAISE 'no'; END IF; RETURN old; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER protect BEFORE DELETE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION protect()"
        )
    batch = store.prune(status=DONE, age=HOUR, limit=100)
    assert (batch.count, batch.refused, batch.fault) == (4, 1, "RaiseException, SQLSTATE P0001")
    assert left(engine) == [ids[2]]


@pytest.mark.parametrize("kept", [3, 25])
def test_a_trigger_that_skips_deletes_stops_nobody(engine: Engine, store: Store, kept: int) -> None:
    """There is no error then: those jobs are counted as refused, and the sweep goes on behind them."""
    ids = add_finished(engine, kept) + add_finished(engine, 30, apart=NONE, age=2 * HOUR)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION protect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF old.id <= {ids[kept - 1]} THEN RETURN NULL; END IF; RETURN old; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER protect BEFORE DELETE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION protect()"
        )
    batches = sweep(store, limit=10)
    assert max(batch.count + batch.refused for batch in batches) <= 10
    assert sum(batch.count for batch in batches) == 30
    assert sum(batch.refused for batch in batches) == kept
    assert {batch.fault for batch in batches} == {None, "a trigger skips the delete"}
    assert left(engine) == ids[:kept]


def test_a_person_without_the_right_is_told_so(engine: Engine) -> None:
    """No job is to blame for that: the error passes through, where a runner counts and goes on."""
    add_finished(engine, 3)
    role = f"reader_{secrets.token_hex(6)}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        connection.execute(text(f"GRANT SELECT, UPDATE ON jobqueue_jobs TO {role}"))
        connection.execute(text(f"SET LOCAL ROLE {role}"))
        with pytest.raises(ProgrammingError, match="permission denied"):
            prune(connection, status=DONE, older_than=HOUR)
        assert count_prunable(connection, status=DONE, older_than=HOUR) == 3
        connection.execute(text("RESET ROLE"))
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_persons_snapshot_that_is_too_old_is_told(engine: Engine, level: str) -> None:
    """A job has changed since the transaction began: it fails as any would, instead of reporting that nothing is old."""
    ids = add_finished(engine, 3)
    with engine.connect().execution_options(isolation_level=level) as person:
        assert count_prunable(person, status=DONE, older_than=HOUR) == 3
        change(engine, ids[1], reason="seen")
        with pytest.raises(OperationalError, match="could not serialize"):
            prune(person, status=DONE, older_than=HOUR)
        person.rollback()
        assert prune(person, status=DONE, older_than=HOUR).count == 3
        person.rollback()


@pytest.mark.parametrize(("on_delete", "rows"), [("ON DELETE CASCADE", 0), ("ON DELETE SET NULL", 2)])
def test_foreign_keys_that_say_what_to_do(engine: Engine, store: Store, on_delete: str, rows: int) -> None:
    """With ON DELETE the application's rows follow or stay, as it says, and the jobs go."""
    reference(engine, add_finished(engine, 2), on_delete)
    assert store.prune(status=DONE, age=HOUR, limit=100).count == 2
    with engine.connect() as connection:
        ids = connection.execute(text("SELECT job_id FROM documents")).scalars().all()
    assert list(ids) == [None] * rows


@pytest.mark.parametrize("locked", [1, 60])
def test_an_applications_lock_behind_a_foreign_key_is_not_waited_out(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch, locked: int
) -> None:
    """The cascade meets rows that a long transaction holds: a few moments at most, and those jobs are left."""
    monkeypatch.setattr("sa_jobqueue.store.store.PATIENCE", timedelta(milliseconds=20))
    ids = add_finished(engine, 60)
    reference(engine, ids, "ON DELETE CASCADE")
    with engine.connect() as application:
        application.execute(text("SELECT id FROM documents WHERE id <= :n FOR UPDATE"), {"n": locked})
        with counted(engine) as statements:
            batches = sweep(store, limit=20)
        application.rollback()
    assert left(engine) == ids[:locked]
    assert {batch.refused for batch in batches} == {0}
    if locked == len(ids):
        assert len(statements) <= 1 + MOST_WAITS * len(batches)
    assert sum(batch.count for batch in sweep(store)) == locked


def test_a_persons_prune_is_the_callers_transaction(engine: Engine) -> None:
    """It commits nothing, leaves the caller's lock_timeout alone, and a job that must stay does not spoil the rest."""
    ids = add_finished(engine, 6)
    reference(engine, ids[2:3])
    with engine.connect() as person:
        person.execute(text("SET LOCAL lock_timeout = '7s'"))
        batch = prune(person, status=DONE, older_than=HOUR)
        assert (batch.count, batch.refused, batch.more) == (5, 1, False)
        assert left(engine) == ids
        assert person.execute(text("SHOW lock_timeout")).scalar_one() == "7s"
        person.rollback()
    assert left(engine) == ids
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as person:
        assert prune(person, status=DONE, older_than=HOUR, limit=6).count == 5
    assert left(engine) == ids[2:3]


def test_the_count_of_a_dry_run(engine: Engine) -> None:
    """What a prune would try, and nothing else, is counted; nothing is locked or deleted."""
    ids = add_finished(engine, 3) + add_finished(engine, 2, age=HOUR / 2, apart=NONE)
    add_finished(engine, 4, status="dead")
    with engine.connect() as person:
        assert count_prunable(person, status=DONE, older_than=HOUR) == 3
        assert count_prunable(person, status=CANCELLED, older_than=HOUR) == 0
    assert set(ids) <= set(left(engine))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"status": JobStatus.READY}, "only finished jobs are pruned, so one of done, dead, cancelled"),
        ({"status": "old"}, "status='old'"),
        ({"older_than": -HOUR}, "older_than: a delay can't be negative"),
        ({"limit": 0}, "limit: 0 is not between 1 and 10,000"),
        ({"limit": 10_001}, "limit: 10001"),
    ],
)
def test_what_cannot_be_meant_is_refused(engine: Engine, wrong: dict[str, Any], words: str) -> None:
    """A slip is told before anything is sent."""
    with engine.connect() as person:
        with pytest.raises(ValueError, match=words):
            prune(person, **{"status": DONE, "older_than": HOUR, **wrong})
        assert not person.in_transaction()


def test_from_asyncio(database_url: str, engine: Engine) -> None:
    """The same through asyncpg, awaited."""
    ids = add_finished(engine, 3)
    reference(engine, ids[:1])

    async def main() -> Pruned:
        asynchronous = create_async_engine(make_url(database_url).set(drivername="postgresql+asyncpg"))
        async with asynchronous.begin() as connection:
            batch = await prune(connection, status=DONE, older_than=HOUR, limit=2)
            batch = await prune(connection, status=DONE, older_than=HOUR, position=batch.position)
        await asynchronous.dispose()
        return batch

    assert asyncio.run(main()).count == 1
    assert left(engine) == ids[:1]
