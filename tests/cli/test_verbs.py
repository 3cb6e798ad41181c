"""`sa-jobqueue jobs cancel|redrive|reschedule`: who is meant, who is asked, what is written and what is told."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func, insert, select, text

from sa_jobqueue.models import jobs
from sa_jobqueue.store.pieces import PROBES
from tests.cli.conftest import Command, objects, rows
from tests.support.jobs import add_job, add_running, keyed, read_job, refuse, server_time

HOUR = timedelta(hours=1)
DEAD: dict[str, Any] = {"status": "dead", "reason": "exhausted", "finished_at": func.now()}


def add_many(engine: Engine, number: int, **columns: Any) -> None:
    with engine.begin() as connection:
        connection.execute(insert(jobs).values(**columns), [{"kind": "test"}] * number)


def statuses(engine: Engine) -> list[str]:
    return [row.status for row in rows(engine)]


# --- one job ----------------------------------------------------------------------------------------------------


def test_one_job_by_its_id(command: Command, engine: Engine) -> None:
    """No question, one line."""
    job_id = add_job(engine, **DEAD)
    result = command("jobs", "redrive", job_id)
    assert (result.exit_code, result.output) == (0, f"job {job_id}: ready again\n")
    result = command("jobs", "cancel", job_id)
    assert (result.exit_code, result.output) == (0, f"job {job_id}: cancelled\n")
    assert statuses(engine) == ["cancelled"]


def test_a_running_job_is_asked_to_stop(command: Command, engine: Engine) -> None:
    """It is not cancelled yet, and nobody is told that it were."""
    job_id = add_running(engine, uuid4())
    result = command("jobs", "cancel", job_id)
    assert result.exit_code == 0
    assert f"job {job_id}: asked to stop; the runner sees it at its next renewal" in result.stdout
    assert read_job(engine, job_id).cancel_requested_at is not None


def test_a_job_that_does_not_go(command: Command, engine: Engine) -> None:
    """Code 1, and the reason."""
    job_id = add_job(engine, status="done", finished_at=func.now())
    result = command("jobs", "redrive", job_id)
    assert result.exit_code == 1
    assert f"job {job_id}: not ready again: the job is done" in result.stderr
    assert "no such job" in command("jobs", "cancel", 99).stderr


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--at", "2030-01-31T09:00+01:00"), "2030-01-31T08:00:00+00:00"),
        (("--at", "2030-01-31T08:00Z"), "2030-01-31T08:00:00+00:00"),
    ],
)
def test_reschedule_to_a_time(
    command: Command, engine: Engine, option: tuple[str, ...], expected: str
) -> None:
    """The time as it was written, zone and all."""
    job_id = add_job(engine)
    assert command("jobs", "reschedule", job_id, *option).exit_code == 0
    with engine.connect() as connection:
        stored = connection.execute(select(func.timezone("UTC", jobs.c.run_at))).scalar_one()
    assert stored.isoformat() + "+00:00" == expected


def test_reschedule_from_now_and_by_priority(command: Command, engine: Engine) -> None:
    """From now on the database's clock; a new priority alone leaves the time."""
    job_id = add_job(engine, run_at=func.now() + 10 * HOUR)
    before = read_job(engine, job_id)
    assert command("jobs", "reschedule", job_id, "--priority", 0).exit_code == 0
    row = read_job(engine, job_id)
    assert (row.priority, row.run_at) == (0, before.run_at)
    began = server_time(engine)
    assert command("jobs", "reschedule", job_id, "--in", "1h30m").exit_code == 0
    ended = server_time(engine)
    assert began <= read_job(engine, job_id).run_at - 1.5 * HOUR <= ended
    assert command("jobs", "reschedule", job_id, "--now").exit_code == 0
    assert read_job(engine, job_id).run_at <= server_time(engine)


# --- who is meant -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cancel",), "which jobs? Give ids (sa-jobqueue jobs cancel 7 8), a filter"),
        (("cancel", "7", "--all"), "one of the three"),
        (("redrive", "7", "--queue", "ai"), "one of the three"),
        (
            ("redrive", "--status", "done"),
            "redrive is for jobs that are dead or cancelled, not done: leave out --status done",
        ),
        (("reschedule", "7"), "nothing to change: give --now"),
        (("reschedule", "7", "--now", "--in", "1m"), "give one of the three"),
        (("reschedule", "7", "--at", "tomorrow"), "'tomorrow' is no time: write it as"),
        (("reschedule", "7", "--at", "2030-01-01T00:00"), "names no zone: write 2030-01-01T00:00Z"),
        (("reschedule", "7", "--priority", "10"), "10 is not in the range"),
        (("cancel", "0"), "'0' is no job id"),
        (("cancel", str(2**63)), f"'{2**63}' is no job id"),
    ],
)
def test_usage(command: Command, arguments: tuple[str, ...], message: str) -> None:
    """Code 2 and what to type, before anything is asked of the database."""
    result = command("jobs", *arguments, DATABASE_URL="postgresql://127.0.0.1:1/none")
    assert result.exit_code == 2
    assert message in result.output


def test_a_filter_means_what_the_verb_is_for(command: Command, engine: Engine) -> None:
    """Without a status those that the verb can leave; others are neither touched nor told."""
    add_job(engine, queue="ai", **DEAD)
    add_job(engine, queue="mail", **DEAD)
    add_job(engine, queue="ai", status="done", finished_at=func.now())
    add_job(engine, queue="ai")
    result = command("jobs", "redrive", "--queue", "ai", "--yes")
    assert (result.exit_code, result.output) == (0, "job 1: ready again\n")
    assert statuses(engine) == ["ready", "dead", "done", "ready"]
    assert command("jobs", "redrive", "--all", "--yes").exit_code == 0
    assert statuses(engine) == ["ready", "ready", "done", "ready"]


def test_nothing_fits(command: Command) -> None:
    """Nothing to do is no failure, and nothing is asked."""
    result = command("jobs", "cancel", "--kind", "none")
    assert (result.exit_code, result.output) == (0, "No jobs fit.\n")


# --- the question -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [("1", "2"), ("--status", "dead")])
def test_without_a_terminal_somebody_must_have_said_yes(
    command: Command, engine: Engine, choice: tuple[str, ...]
) -> None:
    """A script says --yes, or learns how; nothing has been written."""
    add_many(engine, 2, **DEAD)
    before = rows(engine)
    result = command("jobs", "redrive", *choice)
    assert result.exit_code == 2
    assert "Redrive 2 jobs (2 dead)?" in result.stderr
    assert "add --yes" in result.stderr
    assert rows(engine) == before
    assert command("jobs", "redrive", *choice, "--yes").exit_code == 0
    assert statuses(engine) == ["ready", "ready"]


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_the_number_is_shown_and_asked_about(command: Command, engine: Engine) -> None:
    """No means no, code 1; the question goes to standard error."""
    add_many(engine, 2, **DEAD)
    add_many(engine, 1, status="cancelled", finished_at=func.now())
    before = rows(engine)
    result = command("jobs", "redrive", "--all", answer="n\n")
    assert result.exit_code == 1
    assert "Redrive 3 jobs (2 dead, 1 cancelled)? [y/N]" in result.stderr
    assert rows(engine) == before
    assert command("jobs", "redrive", "--all", answer="y\n").exit_code == 0
    assert statuses(engine) == ["ready"] * 3


@pytest.mark.usefixtures("terminal")
def test_what_no_longer_fits_after_the_question_is_left(
    command: Command, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cancels ready jobs doesn't stop one that began while the question stood there."""
    waits, began = add_job(engine), add_job(engine)

    def meanwhile(*_: Any, **__: Any) -> None:
        with engine.begin() as connection:
            held = {
                "status": "running",
                "attempts": 1,
                "lease_token": uuid4(),
                "lease_until": func.now() + HOUR,
            }
            connection.execute(jobs.update().where(jobs.c.id == began).values(**held))

    monkeypatch.setattr("sa_jobqueue.cli.jobs.verbs.confirm", meanwhile)
    result = command("jobs", "cancel", "--status", "ready")
    assert result.exit_code == 1
    assert f"job {began}: not cancelled: it doesn't fit the filter any more" in result.stderr
    assert read_job(engine, began).cancel_requested_at is None
    assert read_job(engine, waits).status == "cancelled"


@pytest.mark.parametrize(
    "verb", [("cancel",), ("redrive",), ("reschedule", "--now"), ("reschedule", "--in", "1h", "--json")]
)
def test_a_dry_run_writes_nothing(command: Command, engine: Engine, verb: tuple[str, ...]) -> None:
    """What is meant is shown, and every row is as it was."""
    add_many(engine, 30, run_at=func.now() - HOUR)
    add_many(engine, 3, **DEAD)
    add_running(engine, uuid4())
    before = rows(engine)
    result = command("jobs", *verb, "--all", "--dry-run")
    assert result.exit_code == 0
    if "--json" in verb:
        assert objects(result)[0] == {"id": 30, "verb": "reschedule", "dry_run": True}
        assert len(objects(result)) == 30
    else:
        meant = {"cancel": "31 jobs (30 ready, 1 running)", "redrive": "3 jobs (3 dead)"}.get(
            verb[0], "30 jobs"
        )
        assert f"Would {verb[0]} {meant}" in result.stderr
        assert "nothing was changed" in result.stderr
    assert rows(engine) == before


# --- many jobs --------------------------------------------------------------------------------------------------


def test_many_jobs_in_batches(command: Command, engine: Engine) -> None:
    """More jobs than a batch and a page hold, each once; the account counts them."""
    add_many(engine, 1200, **DEAD)
    result = command("jobs", "redrive", "--status", "dead", "--yes")
    assert (result.exit_code, result.output) == (0, "1,200 ready again\n")
    assert set(statuses(engine)) == {"ready"}


def test_a_batch_is_a_transaction(command: Command, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between two batches, the first one stays and the rest is untouched: code 130."""
    add_many(engine, 5, **DEAD)
    monkeypatch.setattr("sa_jobqueue.cli.jobs.acting.BATCH", 2)
    calls = 0

    def stop(connection: Any, ids: list[int]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        from sa_jobqueue.admin import redrive

        return redrive(connection, ids)

    monkeypatch.setattr("sa_jobqueue.cli.jobs.verbs.redrive_jobs", stop)
    result = command("jobs", "redrive", "--all", "--yes")
    assert result.exit_code == 130
    assert "4 ready again" in result.stdout
    assert "left: 1;" in result.stderr
    assert statuses(engine) == ["dead", *["ready"] * 4]


def test_reasons_are_told_up_to_a_bound(command: Command, engine: Engine) -> None:
    """The first of those that did not go by name, the others by number; --json tells of each."""
    add_many(engine, 25, status="done", finished_at=func.now())
    arguments = ("jobs", "redrive", *range(1, 26), "--yes")
    result = command(*arguments)
    assert result.exit_code == 1
    assert result.stderr.count(": not ready again: the job is done") == 20
    assert "and 5 more that were not ready again; --json tells of each" in result.stderr
    told = objects(command(*arguments, "--json"))
    assert len(told) == 25
    assert told[0] == {
        "id": 1,
        "landed": False,
        "status": "done",
        "reason": "the job is done, neither dead nor cancelled",
    }


def test_a_held_key_stops_its_own_job(command: Command, engine: Engine) -> None:
    """The others of the batch go."""
    blocked = add_job(engine, **DEAD, **keyed("k", held=False))
    holder = add_job(engine, **keyed("k"))
    add_many(engine, 2, **DEAD)
    result = command("jobs", "redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert "2 ready again" in result.stdout
    assert f"job {blocked}: not ready again: key held by job {holder}" in result.stderr


def test_a_refused_job_stops_no_other(command: Command, engine: Engine) -> None:
    """A trigger of the application's takes offence at one row: it is named, the rest is written."""
    add_many(engine, 7, **DEAD)
    refuse(engine, 4, "RAISE EXCEPTION 'not this one'")
    result = command("jobs", "redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert "6 ready again" in result.stdout
    assert "job 4: not ready again:" in result.stderr
    assert "not this one" in result.stderr
    assert statuses(engine) == ["ready"] * 3 + ["dead"] + ["ready"] * 3


def test_what_everybody_is_refused_is_not_tried_for_ever(
    command: Command, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger that lets nobody through: some whole batches are told, each tried in a few pieces, and the rest is left."""
    monkeypatch.setattr("sa_jobqueue.cli.jobs.acting.BATCH", 50)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE tries")
    add_many(engine, 1000)
    refuse(engine, 0, "NULL")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM nextval('tries'); RAISE 'nobody'; END $$"
        )
    result = command("jobs", "cancel", "--all", "--yes")
    assert result.exit_code == 1
    assert "job 1000: not cancelled: psycopg.errors.RaiseException: nobody" in result.stderr
    assert "and 180 more that were not cancelled" in result.stderr
    assert "left: 800; the last 4 batches were refused whole" in result.stderr
    with engine.connect() as connection:
        assert connection.execute(text("SELECT last_value FROM tries")).scalar_one() <= 4 * (1 + PROBES)


def test_a_locked_job_stops_no_other(
    command: Command, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's open transaction holds one row: the command doesn't hang, and the others go."""
    add_many(engine, 4, **DEAD)
    monkeypatch.setattr("sa_jobqueue.cli.connect.LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr("sa_jobqueue.cli.jobs.acting._IMPATIENT", "100ms")
    with engine.begin() as connection:
        connection.execute(select(jobs.c.id).where(jobs.c.id == 2).with_for_update())
        result = command("jobs", "redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert "3 ready again" in result.stdout
    assert "job 2: not ready again: psycopg.errors.LockNotAvailable" in result.stderr
    assert statuses(engine) == ["ready", "dead", "ready", "ready"]


def test_a_role_without_the_right_is_told_once(command: Command, engine: Engine, database_url: str) -> None:
    """What is missing for every row is said once, with the rights that are needed."""
    add_many(engine, 600, **DEAD)
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE reader_of_jobs LOGIN"))
        connection.execute(text("GRANT SELECT ON jobqueue_jobs TO reader_of_jobs"))
    try:
        url = database_url.replace("//postgres@", "//reader_of_jobs@")
        assert command("jobs", "list", DATABASE_URL=url).exit_code == 0
        result = command("jobs", "redrive", "--all", "--yes", DATABASE_URL=url)
        assert result.exit_code == 1
        assert result.stderr.count("permission denied") == 1
        assert "SELECT and UPDATE for the verbs" in result.stderr
        assert "left: 600;" in result.stderr
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP OWNED BY reader_of_jobs"))
            connection.execute(text("DROP ROLE reader_of_jobs"))


def test_two_people_at_once(command: Command, engine: Engine) -> None:
    """The second waits for the first one's rows and is told what they have become."""
    add_many(engine, 3, **DEAD)
    results: list[Any] = []
    with engine.begin() as connection:
        connection.execute(select(jobs.c.id).where(jobs.c.id == 3).with_for_update())
        thread = threading.Thread(target=lambda: results.append(command("jobs", "redrive", 1, 2, 3, "--yes")))
        thread.start()
        wait_for_a_lock(engine)
        connection.execute(
            jobs.update().where(jobs.c.id == 3).values(status="ready", finished_at=None, reason=None)
        )
    thread.join()
    (result,) = results
    assert "2 ready again" in result.stdout
    assert "job 3: not ready again: the job is ready" in result.stderr


def wait_for_a_lock(engine: Engine) -> None:
    """Return when somebody in this database waits for a lock."""
    from tests.support.waiting import wait_until

    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
        wait_until(lambda: watcher.execute(waiting).scalar_one(), what="somebody waits for a lock")
