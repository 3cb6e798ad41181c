"""The text of the statements: what must stand in it, and what must never."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.sql.expression import ClauseElement

from sa_jobqueue.queries import due, ending, expired, held, schema, stored, unknown, unserved
from sa_jobqueue.statements import (
    bring_forward,
    cancel,
    claim,
    fence,
    idle,
    postpone,
    redrive,
    renew,
    report,
    reschedule,
    rescue,
    settle,
)

BATCHES = [
    renew.renew,
    report.report,
    rescue.rescue,
    *(statement for statement, _ in settle.SETTLING.values()),
]
OPERATOR = [cancel.cancel, redrive.redrive, redrive.redrive_keyed, reschedule.reschedule]
STATEMENTS: list[Callable[[], Any]] = [
    *BATCHES,
    claim.claim,
    claim.claim_listed,
    claim.candidates,
    settle.release_claim,
    settle.release_listed,
    fence.fence,
    *OPERATOR,
    postpone.postpone,
    redrive.key_is_held,
    expired.expired,
    held.owners,
    held.of_token,
    ending.ending,
    schema.comment,
    unknown.unknown_kinds,
    unknown.waiting,
    unserved.unserved,
    due.due_queues,
    stored.stored_jobs,
    bring_forward.bring_forward,
    idle.wait_for_jobs,
    idle.stop_waiting,
    schema.channel,
]


def text_of(statement: ClauseElement) -> str:
    return re.sub(r"\s+", " ", str(statement.compile(dialect=psycopg.dialect())))


def test_claim() -> None:
    """The claim, word for word: one branch per queue and priority, both limited, ids by an array sub-select.

    Each branch begins behind its mark.
    """
    assert text_of(claim.claim()) == (
        "UPDATE jobqueue_jobs SET status='running', attempts=(least(jobqueue_jobs.attempts, 2147483646) + 1), "
        "lease_token=CAST(%(token)s::UUID AS UUID), "
        "lease_until=(statement_timestamp() + CAST(%(lease)s::INTERVAL AS INTERVAL)), "
        "leased_by=CAST(%(runner)s::VARCHAR AS TEXT), updated_at=statement_timestamp() "
        "WHERE jobqueue_jobs.id = ANY (ARRAY((SELECT taken.id "
        "FROM unnest(CAST(%(queues)s::TEXT[] AS TEXT[]), CAST(%(quotas)s::INTEGER[] AS INTEGER[])) "
        "WITH ORDINALITY AS wanted(queue, quota, position) JOIN LATERAL (SELECT due.id AS id "
        "FROM generate_series(0, 9) AS level(priority) JOIN LATERAL (SELECT job.id AS id "
        "FROM jobqueue_jobs AS job WHERE job.status = 'ready' AND job.queue = wanted.queue "
        "AND job.priority = level.priority AND job.kind = ANY (CAST(%(kinds)s::TEXT[] AS TEXT[])) "
        "AND job.run_at <= statement_timestamp() AND (job.run_at, job.id) > ("
        "coalesce((CAST(%(low_times)s::TIMESTAMP WITH TIME ZONE[] AS TIMESTAMP WITH TIME ZONE[]))"
        "[((wanted.position - 1) * 10 + level.priority + 1)], CAST('-infinity' AS TIMESTAMP WITH TIME ZONE)), "
        "coalesce((CAST(%(low_ids)s::BIGINT[] AS BIGINT[]))"
        "[((wanted.position - 1) * 10 + level.priority + 1)], CAST('-9223372036854775808' AS BIGINT))) "
        "ORDER BY job.run_at, job.id LIMIT wanted.quota FOR NO KEY UPDATE SKIP LOCKED) AS due ON true "
        "LIMIT wanted.quota) AS taken ON true))) RETURNING "
        "jobqueue_jobs.id, jobqueue_jobs.kind, jobqueue_jobs.queue, CAST(jobqueue_jobs.payload AS TEXT) AS payload, "
        "jobqueue_jobs.payload_version, jobqueue_jobs.priority, jobqueue_jobs.attempts, jobqueue_jobs.returned, "
        "jobqueue_jobs.max_attempts, "
        "greatest(least(jobqueue_jobs.run_at, CAST('9999-12-30T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)), "
        "CAST('0001-01-02T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)) AS run_at, "
        "greatest(least(jobqueue_jobs.created_at, CAST('9999-12-30T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)), "
        "CAST('0001-01-02T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)) AS created_at, "
        "jobqueue_jobs.idempotency_key, "
        "coalesce(jobqueue_jobs.expires_at <= statement_timestamp(), false) AS expired, jobqueue_jobs.key_scope"
    )


@pytest.mark.parametrize("build", [claim.claim, claim.claim_listed])
def test_a_claim_stands_back_for_writers_alone(build: Callable[[], Any]) -> None:
    """What is locked is left out, but not for the KEY SHARE of a foreign key that points at the job."""
    (lock,) = re.findall(r"FOR [A-Z ]*UPDATE[A-Z ]*", text_of(build()))
    assert lock == "FOR NO KEY UPDATE SKIP LOCKED"


@pytest.mark.parametrize("build", BATCHES)
def test_batches_take_their_rows_by_id_and_token(build: Callable[[], Any]) -> None:
    """Id and token, in id order, skipping what is locked: nothing waits for a row, nothing relies on the id alone."""
    text = text_of(build())
    assert re.match(r"WITH held AS MATERIALIZED \(SELECT mine\.id AS id, batch\.position AS position", text)
    cte, update = text.split(" UPDATE jobqueue_jobs ")
    assert "ORDER BY asked.id) AS batch JOIN LATERAL (SELECT job.id AS id FROM jobqueue_jobs AS job" in cte
    assert "WHERE job.id = batch.id AND job.lease_token = batch.token" in cte
    assert cte.endswith("FOR NO KEY UPDATE SKIP LOCKED) AS mine ON true)")
    assert "FROM held WHERE jobqueue_jobs.id = held.id RETURNING held.position" in update


@pytest.mark.parametrize("build", BATCHES)
def test_no_guard_names_the_status(build: Callable[[], Any]) -> None:
    """Beside a token a status test makes the planner walk the index of running jobs for every id."""
    text = text_of(build())
    assert "job.status" not in text
    assert "WHERE jobqueue_jobs.status" not in text


@pytest.mark.parametrize(("build", "ids"), [(settle.release_claim, False), (settle.release_listed, True)])
def test_a_lost_claim_is_found_by_its_token(build: Callable[[], Any], *, ids: bool) -> None:
    """Without ids the running jobs are the way in; locks in id order, none waited for, as in every batch."""
    listed = "AND job.id = ANY (CAST(%(ids)s::VARCHAR AS BIGINT[])) " if ids else ""
    cte, update = text_of(build()).split(" UPDATE jobqueue_jobs ")
    assert cte == (
        "WITH held AS MATERIALIZED (SELECT job.id AS id FROM jobqueue_jobs AS job WHERE job.status = 'running' "
        f"AND job.lease_token = CAST(%(token)s::UUID AS UUID) {listed}"
        "ORDER BY job.id FOR NO KEY UPDATE SKIP LOCKED)"
    )
    assert update.endswith(
        "FROM held WHERE jobqueue_jobs.id = held.id RETURNING jobqueue_jobs.id, jobqueue_jobs.status"
    )


@pytest.mark.parametrize("build", OPERATOR)
def test_a_persons_verb_locks_in_id_order_and_waits(build: Callable[[], Any]) -> None:
    """No lock is skipped, for nobody comes back for what was left out; id order keeps two people from a deadlock."""
    locks, change, answer = re.split(r"(?<=\)), changed AS|(?<=\.status\)) (?=SELECT)", text_of(build()))
    assert locks.startswith("WITH named AS MATERIALIZED (SELECT job.id AS id, job.status AS status")
    assert locks.endswith(
        "WHERE job.id = ANY (CAST(%(ids)s::VARCHAR AS BIGINT[])) ORDER BY job.id FOR NO KEY UPDATE OF job)"
    )
    assert "FROM named WHERE named.status " in change
    assert "AND jobqueue_jobs.id = named.id RETURNING jobqueue_jobs.id, jobqueue_jobs.status" in change
    assert answer.startswith("SELECT named.id, named.status AS before, changed.status AS after")
    assert answer.endswith("FROM named LEFT OUTER JOIN changed ON changed.id = named.id")


def test_a_cancellation_decides_by_the_row() -> None:
    """One statement for jobs that wait and jobs that run: each column by the status that the row has when it is locked."""
    waits = "CASE WHEN (jobqueue_jobs.status = 'ready') THEN"
    column = "jobqueue_jobs.{0}".format
    assert text_of(cancel.cancel()).split("UPDATE jobqueue_jobs SET ")[1].split(" FROM named")[0] == (
        f"status={waits} 'cancelled' ELSE {column('status')} END, "
        f"cancel_requested_at={waits} {column('cancel_requested_at')} "
        f"ELSE coalesce({column('cancel_requested_at')}, statement_timestamp()) END, "
        f"unique_key={waits} CASE WHEN ({column('key_scope')} = 'unfinished') THEN NULL "
        f"ELSE {column('unique_key')} END ELSE {column('unique_key')} END, "
        f"reason={waits} 'cancelled' ELSE {column('reason')} END, updated_at=statement_timestamp(), "
        f"finished_at={waits} statement_timestamp() ELSE {column('finished_at')} END"
    )


def test_only_a_completion_needs_the_lease() -> None:
    """The completion proves its lease, the rescue that it is past; the other verbs go by the token alone."""
    tests = {
        statement.__name__: re.findall(r"job\.lease_until ([<>]) statement_timestamp", text_of(statement()))
        for statement in BATCHES
    }
    expected = {"complete": [">"], "rescue": ["<"]}
    assert tests == {statement.__name__: expected.get(statement.__name__, []) for statement in BATCHES}


def test_the_fence_looks_again_after_its_wait() -> None:
    """The row is locked first, waited for if need be; the lease is that of the locked row, by the clock that goes on."""
    cte, update = text_of(fence.fence()).split(" UPDATE jobqueue_jobs ")
    assert cte == (
        "WITH mine AS MATERIALIZED (SELECT job.id AS id, job.lease_until AS lease_until FROM jobqueue_jobs AS job "
        "WHERE job.id = CAST(%(job_id)s::BIGINT AS BIGINT) AND job.lease_token = CAST(%(token)s::UUID AS UUID) "
        "FOR NO KEY UPDATE)"
    )
    changes, rest = update.split(" FROM mine WHERE ")
    guard, answer = rest.split(" RETURNING ")
    assert guard == "jobqueue_jobs.id = mine.id AND mine.lease_until > clock_timestamp()"
    assert answer.startswith("CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT) AS xid, ")
    assert re.search(r"set_config\('idle_in_transaction_session_timeout', .*, true\) AS silence$", answer)
    columns = re.findall(r"(\w+)=", changes)
    assert columns == re.findall(
        r"(\w+)=", text_of(settle.complete()).split(" FROM held ")[0].split(" SET ")[1]
    )


def test_only_settlements_leave_their_token() -> None:
    """settled_token tells after a lost answer which write landed: no renewal, rescue or person may touch it."""
    stamped = {
        build.__name__
        for build in STATEMENTS
        if "settled_token=jobqueue_jobs.lease_token" in text_of(build())
    }
    assert stamped == {
        "complete",
        "retry",
        "snooze",
        "discard",
        "release",
        "abort",
        "release_claim",
        "release_listed",
        "fence",
    }
    others = [text_of(build()) for build in STATEMENTS if build.__name__ not in stamped]
    assert not [text for text in others if re.search(r"settled_token\s*=", text)]


def test_a_postponement_changes_due_times_alone() -> None:
    """By id and still due, in id order, skipping what is locked; status, attempts and owner are not its business."""
    cte, update = text_of(postpone.postpone()).split(" UPDATE jobqueue_jobs ")
    assert cte == (
        "WITH held AS MATERIALIZED (SELECT job.id AS id, batch.position AS position "
        "FROM jobqueue_jobs AS job JOIN unnest(CAST(%(ids)s::VARCHAR AS BIGINT[])) "
        "WITH ORDINALITY AS batch(id, position) ON job.id = batch.id AND job.lease_token IS NULL "
        "AND job.finished_at IS NULL AND job.run_at <= statement_timestamp() "
        "ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED)"
    )
    assert re.findall(r"\b(\w+)=", update) == ["run_at", "updated_at"]
    assert update.endswith(
        "FROM held WHERE jobqueue_jobs.id = held.id RETURNING held.position, jobqueue_jobs.run_at"
    )


@pytest.mark.parametrize("build", STATEMENTS)
def test_statuses_and_clock(build: Callable[[], Any]) -> None:
    """Statuses stand in the text, where partial indexes are matched; the clock is the statement's, never now()."""
    statement = build()
    text = text_of(statement)
    compiled = statement.compile(dialect=psycopg.dialect())
    assert not {"ready", "running", "done", "dead", "cancelled"} & set(map(str, compiled.params.values()))
    assert "now()" not in text
    assert "CURRENT_TIMESTAMP" not in text.upper()


@pytest.mark.parametrize("build", STATEMENTS)
def test_every_parameter_is_cast(build: Callable[[], Any]) -> None:
    """Each driver sends a list or a NULL in its own way: the text itself says the type."""
    text = str(build().compile(dialect=postgresql.dialect()))
    assert len(re.findall(r"CAST\(%\(\w+\)s(?:::[\w ]+(?:\[\])?)? AS \w", text)) == text.count("%(")


@pytest.mark.parametrize("build", STATEMENTS)
def test_statements_are_built_once(build: Callable[[], Any]) -> None:
    """SQLAlchemy's cache of compiled statements works fastest on the same object."""
    assert build() is build()
