"""The account itself: a sound one passes every check, and each check finds the one thing that it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sa_jobqueue.testing.server import connect
from tests.chaos import checks, ledger

TOKEN = "00000000-0000-0000-0000-00000000000"
CLAIM = (
    "UPDATE jobqueue_jobs SET status = 'running', attempts = attempts + 1, leased_by = 'runner',"
    " lease_token = '{token}', lease_until = clock_timestamp() WHERE id = {job}"
)
#: A job is let go by its run when that leaves its token, or by a rescue when not.
LET_GO = (
    "UPDATE jobqueue_jobs SET status = '{status}', settled_token = {settled}, lease_token = NULL, lease_until = NULL,"
    " leased_by = NULL, finished_at = CASE WHEN '{status}' <> 'ready' THEN clock_timestamp() END WHERE id = {job}"
)
ADD = "INSERT INTO jobqueue_jobs (id, kind, payload) VALUES ({job}, '{kind}', '{{\"mark\": {mark}}}')"
EFFECT = "INSERT INTO chaos_effects (job_id) VALUES ({job})"


class Account:
    """Writes down what runs would bring about, in transactions as theirs."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def __call__(self, *statements: str, **values: Any) -> None:
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute((statement.format(**values) if values else statement).encode())

    def add(self, job: int, kind: str, mark: int | None = None) -> None:
        self(ADD, job=job, kind=kind, mark=job if mark is None else mark)
        ledger.promise(self.connection, [(job, kind, "committed")] if mark is None else [])

    def claim(self, job: int, token: int = 1) -> None:
        self(CLAIM, job=job, token=f"{TOKEN}{token}")

    def let_go(self, job: int, status: str, *more: str, settled: str = "lease_token") -> None:
        self(*more, LET_GO, job=job, status=status, settled=settled)


@pytest.fixture
def account(database_url: str) -> Iterator[Account]:
    """A sound one: jobs that were done, by the second run also, dead, cancelled and pruned, and one rolled back."""
    with connect(database_url) as connection:
        ledger.create(connection)
        account = Account(connection)
        for job, kind in enumerate(["note", "effect", "chain", "doomed", "flaky", "note"], 1):
            account.add(job, kind)
            account.claim(job)
        account("INSERT INTO chaos_runs (job_id, attempt, pid) VALUES (1, 1, 1)")
        account.let_go(1, "done")
        account.let_go(2, "ready", settled="settled_token")
        account.claim(2, token=2)
        account.let_go(2, "done", EFFECT)
        account.let_go(
            3, "done", EFFECT, ADD.format(job=7, kind="note", mark=-3).replace("{", "{{").replace("}", "}}")
        )
        account.claim(7)
        account.let_go(7, "done")
        account.let_go(4, "dead")
        account.let_go(5, "cancelled")
        account("INSERT INTO chaos_cancelled VALUES (5)")
        account.let_go(6, "done")
        account("DELETE FROM jobqueue_jobs WHERE id = 6")
        ledger.promise(connection, [(8, "note", "rolled back"), (9, "note", "unknown")])
        assert checks.offenders(connection) == {}
        yield account


RIGGED = {
    "committed, and never there": "INSERT INTO chaos_promises VALUES (10, 'note', 'committed')",
    "there, and vanished": "SET session_replication_role = replica; DELETE FROM jobqueue_jobs WHERE id = 1",
    "rolled back, and there": "UPDATE chaos_promises SET fate = 'rolled back' WHERE mark = 1",
    "enqueued by nobody": "DELETE FROM chaos_promises WHERE mark = 1",
    "enqueued twice": "UPDATE transitions SET payload = '{\"mark\": 2}' WHERE job_id = 1",
    "not at rest": "INSERT INTO jobqueue_jobs (id, kind) VALUES (11, 'note')",
    "at rest where it does not belong": "DELETE FROM chaos_cancelled",
    "transition that there is not": "UPDATE transitions SET old_status = 'ready' WHERE new_status = 'dead'",
    "completed twice": (
        "UPDATE jobqueue_jobs SET status = 'ready', finished_at = NULL WHERE id = 1;"
        f"{CLAIM.format(job=1, token=TOKEN + '3')}; {LET_GO.format(job=1, status='done', settled='lease_token')}"
    ),
    "completed by another run than the last one": (
        f"UPDATE transitions SET settled_token = '{TOKEN}1' WHERE job_id = 2 AND new_status = 'done'"
    ),
    "token used twice": f"UPDATE transitions SET new_token = '{TOKEN}1' WHERE job_id = 2 AND new_status = 'running'",
    "effect twice": "INSERT INTO chaos_effects TABLE chaos_effects",
    "effect missing": "DELETE FROM chaos_effects WHERE job_id = 2",
    "effect without its completion": "UPDATE chaos_effects SET xid = '3' WHERE job_id = 2",
    "follow-up without its completion, or the other way round": "DELETE FROM transitions WHERE payload = '{\"mark\": -3}'",
    "attempts other than claims": "UPDATE jobqueue_jobs SET attempts = 3 WHERE id = 2",
    "more runs than claims": "INSERT INTO chaos_runs (job_id, attempt, pid) VALUES (1, 1, 2)",
}


def test_every_check_is_put_to_the_test() -> None:
    """A check that was never seen to fail may never fail."""
    assert RIGGED.keys() == checks.CHECKS.keys()


@pytest.mark.parametrize("check", checks.CHECKS)
def test_a_check_finds_what_it_is_there_for(account: Account, check: str) -> None:
    """One thing is wrong; some are wrong in the eyes of more than one check."""
    account.connection.execute(RIGGED[check].encode())
    assert check in checks.offenders(account.connection)


def test_a_rescue_is_told_from_an_outcome(account: Account) -> None:
    """The token that a job was let go with makes the difference: of a lost run it is not left."""
    found = account.connection.execute("SELECT job_id FROM chaos_rescues").fetchall()
    assert found == [(2,)]
