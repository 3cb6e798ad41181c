"""The insert as text: constant, typed, and the same for every driver and number of jobs."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

from sqlalchemy.dialects import postgresql

from sa_jobqueue.queries.keys import holders_of_keys
from sa_jobqueue.records import NewJob
from sa_jobqueue.statements.insert import insert_job, insert_jobs, insert_parameters

EXPECTED = """
INSERT INTO jobqueue_jobs (kind, payload, queue, payload_version, priority, max_attempts, run_at, expires_at,
 idempotency_key, key_scope, unique_key, trace_context)
SELECT given.kind, CAST(given.payload AS JSONB) AS payload, coalesce(given.queue, 'default') AS coalesce_1,
 coalesce(given.payload_version, 1) AS coalesce_2, coalesce(given.priority, 5) AS coalesce_3,
 coalesce(given.max_attempts, 5) AS coalesce_4, coalesce(given.run_at, now() + given.delay, now()) AS coalesce_5,
 given.expires_at, given.idempotency_key, given.key_scope, given.unique_key,
 CAST(given.trace_context AS JSONB) AS trace_context
FROM unnest(CAST(%(kind)s AS TEXT[]), string_to_array(CAST(%(payload)s AS TEXT), chr(30)), CAST(%(queue)s AS TEXT[]),
 CAST(%(payload_version)s AS INTEGER[]), CAST(%(priority)s AS SMALLINT[]), CAST(%(max_attempts)s AS INTEGER[]),
 CAST(%(run_at)s AS TIMESTAMP WITH TIME ZONE[]), CAST(%(delay)s AS INTERVAL[]),
 CAST(%(expires_at)s AS TIMESTAMP WITH TIME ZONE[]), CAST(%(idempotency_key)s AS TEXT[]),
 CAST(%(key_scope)s AS TEXT[]), CAST(%(unique_key)s AS TEXT[]), CAST(%(trace_context)s AS TEXT[]))
 WITH ORDINALITY AS given(kind, payload, queue, payload_version, priority, max_attempts, run_at, delay, expires_at,
 idempotency_key, key_scope, unique_key, trace_context, position)
WHERE given.unique_key IS NULL OR (SELECT held.unique_key
FROM jobqueue_jobs AS held
WHERE held.unique_key = given.unique_key) IS NULL ORDER BY given.position
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
RETURNING jobqueue_jobs.id, jobqueue_jobs.unique_key, jobqueue_jobs.run_at, jobqueue_jobs.created_at,
 jobqueue_jobs.updated_at
"""

EXPECTED_ALONE = """
INSERT INTO jobqueue_jobs (kind, payload, queue, payload_version, priority, max_attempts, run_at, expires_at,
 idempotency_key, key_scope, unique_key, trace_context)
SELECT CAST(%(kind)s AS TEXT) AS anon_1, CAST(CAST(%(payload)s AS TEXT) AS JSONB) AS anon_2,
 coalesce(CAST(%(queue)s AS TEXT), 'default') AS coalesce_1,
 coalesce(CAST(%(payload_version)s AS INTEGER), 1) AS coalesce_2,
 coalesce(CAST(%(priority)s AS SMALLINT), 5) AS coalesce_3,
 coalesce(CAST(%(max_attempts)s AS INTEGER), 5) AS coalesce_4,
 coalesce(CAST(%(run_at)s AS TIMESTAMP WITH TIME ZONE), now() + CAST(%(delay)s AS INTERVAL), now()) AS coalesce_5,
 CAST(%(expires_at)s AS TIMESTAMP WITH TIME ZONE) AS anon_3, CAST(%(idempotency_key)s AS TEXT) AS anon_4,
 CAST(%(key_scope)s AS TEXT) AS anon_5, CAST(%(unique_key)s AS TEXT) AS anon_6,
 CAST(CAST(%(trace_context)s AS TEXT) AS JSONB) AS anon_7
WHERE CAST(%(unique_key)s AS TEXT) IS NULL OR (SELECT held.unique_key
FROM jobqueue_jobs AS held
WHERE held.unique_key = CAST(%(unique_key)s AS TEXT)) IS NULL
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
RETURNING jobqueue_jobs.id, jobqueue_jobs.unique_key, jobqueue_jobs.run_at, jobqueue_jobs.created_at,
 jobqueue_jobs.updated_at
"""


def text(statement: object) -> str:
    """Without the casts that a dialect adds to its own parameters: ours must stand without them."""
    compiled = statement.compile(dialect=postgresql.dialect(paramstyle="pyformat"))  # type: ignore[attr-defined]
    return re.sub(
        r"\)s::([A-Z ]+\[\]|VARCHAR|INTEGER|SMALLINT|TIMESTAMP WITH TIME ZONE|INTERVAL)",
        ")s",
        " ".join(str(compiled).split()),
    )


def test_the_insert_is_this_text() -> None:
    """Any change of it is looked at: each clause is there for a measured reason."""
    assert text(insert_jobs()) == " ".join(EXPECTED.split())
    assert text(insert_job(keyed=True)) == " ".join(EXPECTED_ALONE.split())


def test_a_job_alone_without_a_key_looks_for_none() -> None:
    """It is the same but for the three columns of a key, and everything that is there for its sake."""
    free = text(insert_job(keyed=False))
    assert "unique_key" not in free.partition(" RETURNING ")[0]
    assert "WHERE" not in free
    assert "CONFLICT" not in free
    same = (
        " AS anon_1, CAST(CAST(%(payload)s",
        "now() + CAST(%(delay)s AS INTERVAL), now())",
        "CAST(%(trace_context)s",
    )
    assert all(part in free and part in text(insert_job(keyed=True)) for part in same)


def test_times_do_not_travel_back_where_nobody_shows_them() -> None:
    """A hundred thousand answers are ids."""
    for statement in (partial(insert_job, keyed=True), partial(insert_job, keyed=False), insert_jobs):
        brief = text(statement(shown=False))
        assert text(statement()).startswith(brief)
        assert brief.endswith("RETURNING jobqueue_jobs.id, jobqueue_jobs.unique_key")


def test_the_statement_is_built_once() -> None:
    """One object means one entry in SQLAlchemy's cache and in the driver's."""
    assert insert_jobs() is insert_jobs()
    assert holders_of_keys() is holders_of_keys()


def test_the_read_names_its_columns_and_leaves_the_large_ones() -> None:
    """A duplicate must not fetch megabytes that nobody asked for."""
    read = text(holders_of_keys())
    assert read.endswith("WHERE jobqueue_jobs.unique_key = ANY (CAST(%(keys)s AS TEXT[]))")
    columns = {part.removeprefix("jobqueue_jobs.") for part in read.split(" FROM ")[0][7:].split(", ")}
    assert columns >= {"id", "kind", "status", "unique_key"}
    assert not columns & {"payload", "result", "errors"}


def test_a_column_of_defaults_does_not_travel() -> None:
    """unnest() fills a shorter array with NULL, which the statement turns into the default."""
    plain = insert_parameters([NewJob(kind="k", payload="{}")] * 3)
    assert {name for name, column in plain.items() if column} == {"kind", "payload"}
    mixed = insert_parameters(
        [NewJob(kind="k", payload="{}"), NewJob(kind="k", payload="{}", delay=timedelta(1))]
    )
    assert mixed["delay"] == [None, timedelta(1)]
    assert mixed["queue"] == []
