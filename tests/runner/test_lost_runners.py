"""Runner processes that are really killed: their jobs come back by the job row alone, and come to rest."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import Engine, text

from tests.support.runners import LEDGER, RunnerProcess, add, ledger, process, row, wait_for_row
from tests.support.waiting import wait_until

APP = "tests.apps.ledger:jobs"
BOMB_BACKOFF = timedelta(milliseconds=400)  # of the application, which can be imported with a database only


def _notes(engine: Engine, note: str) -> int:
    return sum(entry.note == note for entry in ledger(engine))


def test_the_job_of_a_killed_runner_is_run_by_another(engine: Engine, database_url: str) -> None:
    """A SIGKILL costs one lease: the row alone brings the job back, and tells of the lost attempt."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "hang-once")
    with process(APP, database_url, "--name", "first") as first:
        wait_until(lambda: _notes(engine, "begin") == 1, what="the first run")
        first.kill()
    assert row(engine, job).status == "running"
    with process(APP, database_url, "--name", "second"):
        done = wait_for_row(engine, job, lambda it: it.status == "done")
    assert done.attempts == 2
    assert _notes(engine, "begin") == 2
    assert [error["attempt"] for error in done.errors] == [1]
    assert "first" in done.errors[0]["error"]
    assert "lost" in done.errors[0]["error"]


def test_a_runner_killed_in_the_last_attempt_leaves_a_dead_job(engine: Engine, database_url: str) -> None:
    """A job that was never going to be tried again is dead once its runner is lost, and is not handed out again."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "hang", max_attempts=1)
    with process(APP, database_url) as doomed:
        wait_until(lambda: _notes(engine, "begin") == 1, what="the run")
        doomed.kill()
    with process(APP, database_url):
        dead = wait_for_row(engine, job, lambda it: it.status == "dead")
        with engine.begin() as connection:
            after = add(connection, "quick")
        wait_for_row(engine, after, lambda it: it.status == "done")
    assert (dead.reason, dead.attempts) == ("exhausted", 1)
    assert dead.finished_at is not None
    assert "lost" in dead.last_error
    assert row(engine, job) == dead
    assert _notes(engine, "begin") == 1


def test_a_job_that_kills_its_runner_comes_to_rest(engine: Engine, database_url: str) -> None:
    """Attempts count from the claim: a bomb goes off max_attempts times, with its backoff between.

    Its neighbours all get done, also the one that was in the process with it.
    """
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        bomb = add(connection, "bomb", max_attempts=3, priority=0)
        beside = add(connection, "hang-once", max_attempts=10, priority=0)
        others = [beside, *(add(connection, "quick", max_attempts=10) for _ in range(20))]

    def supervise() -> bool:
        with process(APP, database_url, "--queues", "default:2") as runner:
            wait_until(
                lambda: runner.ended or (row(engine, bomb).status == "dead" and _all_done(engine, others)),
                timeout=30,
                what="the bomb or the end",
            )
            return runner.ended

    restarts = 0
    while supervise():
        restarts += 1
        assert restarts <= 3
    assert _notes(engine, "bomb") == 3
    dead = row(engine, bomb)
    assert (dead.status, dead.reason, dead.attempts) == ("dead", "exhausted", 3)
    assert "lost" in dead.last_error
    assert [error["attempt"] for error in dead.errors] == [1, 2, 3]
    begun = [entry.at for entry in ledger(engine) if entry.note == "bomb"]
    lost = [datetime.fromisoformat(error["at"]) for error in dead.errors]
    waits = [again - told for told, again in zip(lost, begun[1:], strict=False)]
    assert [wait >= attempt * BOMB_BACKOFF for attempt, wait in enumerate(waits, 1)] == [True, True]
    assert row(engine, beside).attempts > 1


def _all_done(engine: Engine, jobs: list[int]) -> bool:
    return Counter(row(engine, job).status for job in jobs) == {"done": len(jobs)}


def test_a_paused_runner_writes_nothing_once_another_owns_its_job(engine: Engine, database_url: str) -> None:
    """SIGSTOP beyond the lease, SIGCONT: the late outcome is thrown away and the newer owner's stands."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "nap", '{"seconds": 0.3}')
    with process(APP, database_url, "--name", "paused", "--log-format", "json") as paused:
        wait_until(lambda: _notes(engine, "begin") == 1, what="the first run")
        paused.send(signal.SIGSTOP)
        with process(APP, database_url, "--name", "second"):
            done = wait_for_row(engine, job, lambda it: it.status == "done", timeout=30)
        paused.send(signal.SIGCONT)
        wait_until(lambda: "LeaseLost" in paused.text or "OutcomeDropped" in paused.text, what="its log")
        paused.send(signal.SIGTERM)
        assert paused.wait() == 0
    assert row(engine, job) == done
    assert done.attempts == 2


def test_every_process_of_the_tests_is_a_real_one(engine: Engine, database_url: str) -> None:
    """The runner in the table is the process that was started, by name and by pid."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        job = add(connection, "nap", '{"seconds": 60}')
    runner: RunnerProcess
    with process(APP, database_url, "--name", "it-is-me") as runner:
        wait_for_row(engine, job, lambda it: it.status == "running")
        wait_until(lambda: ledger(engine), what="the ledger")
        assert row(engine, job).leased_by == "it-is-me"
        assert ledger(engine)[0].pid == runner.pid
