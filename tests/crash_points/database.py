"""What lies in the database before a run: the workload, and the tables in which the audit's truth is noted."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from psycopg import Connection

from tests.crash_points.application import LOOP, THREADS
from tests.support.transitions import CREATE_TRANSITIONS

#: `starts` is written by handlers, past everything; `effects` by them in their completions. No key guards them: whatever is
#: written twice is there twice.
SCHEMA = f"""
CREATE TABLE starts (id bigint GENERATED ALWAYS AS IDENTITY, job_id bigint, attempt int, runner text,
    at timestamptz DEFAULT clock_timestamp());
CREATE TABLE effects (job_id bigint, runner text);
{CREATE_TRANSITIONS}
"""
_EMPTY = "TRUNCATE jobqueue_jobs, jobqueue_idle, starts, effects, transitions RESTART IDENTITY"
UNKNOWN = "nobody-knows"
_ADD = """
INSERT INTO jobqueue_jobs (kind, queue, priority, max_attempts, payload) VALUES (%s, %s, %s, %s, '{}')
"""


class Scenario(StrEnum):
    """A part of the workload: small, for every run begins it anew."""

    OUTCOMES = "outcomes"
    COMPLETIONS = "completions"
    ASYNC = "async"
    MAINTENANCE = "maintenance"


#: Kinds in the order in which they run. All that is short goes first, so that the runner has learnt to claim ahead when
#: `long` comes.
_JOBS = {
    Scenario.OUTCOMES: (
        *("return", "retry", "snooze", "discard", "fail", "return", "return"),
        *("progress", "cancel", "long", "return", "return"),
    ),
    Scenario.COMPLETIONS: ("block", "join", "block-fails"),
    Scenario.ASYNC: ("return-async", "block-async", "join-async", "retry-async", "cancel-async"),
    Scenario.MAINTENANCE: ("return",),
}
#: Jobs of which something has become before anybody looks: past their time; lost by a runner (to be run again, out of
#: attempts, to be cancelled); past their retention; of kinds and in queues for which nobody is there.
_PLANTED = {
    Scenario.OUTCOMES: f"""
INSERT INTO jobqueue_jobs (kind, queue, priority, expires_at)
VALUES ('return', '{THREADS}', 0, now() - interval '1 hour')
""",
    Scenario.MAINTENANCE: f"""
INSERT INTO jobqueue_jobs (kind, queue, max_attempts, status, attempts, lease_token, lease_until, leased_by,
    cancel_requested_at)
SELECT 'return', '{THREADS}', most, 'running', 1, gen_random_uuid(), now() - interval '1 hour', 'lost', asked
FROM (VALUES (20, NULL), (1, NULL), (20, now())) AS lost (most, asked);
INSERT INTO jobqueue_jobs (kind, queue, status, attempts, finished_at)
SELECT 'return', '{THREADS}', status, 1, now() - interval '30 days' FROM unnest(ARRAY['done', 'cancelled']) AS status;
INSERT INTO jobqueue_jobs (kind, queue)
SELECT '{UNKNOWN}', queue FROM unnest(ARRAY['{THREADS}', '{LOOP}', 'other']) AS queue, generate_series(1, 3);
INSERT INTO jobqueue_jobs (kind, queue) VALUES ('return', 'unserved');
""",
}
_UNFINISHED = f"""
SELECT count(*) FROM jobqueue_jobs
WHERE status IN ('ready', 'running') AND kind <> '{UNKNOWN}' AND queue <> 'unserved'
"""


def prepare(connection: Connection[Any], scenario: Scenario) -> None:
    """Only this workload is left."""
    rows = []
    for place, kind in enumerate(_JOBS[scenario]):
        queue = LOOP if kind.endswith("-async") else THREADS
        rows.append((kind, queue, min(1 + place // 3, 8), 2 if kind == "fail" else 20))
    with connection.transaction():
        connection.execute(_EMPTY)
        connection.execute(_PLANTED.get(scenario, "").encode())
        with connection.cursor() as cursor:
            cursor.executemany(_ADD, rows)


def unfinished(connection: Connection[Any]) -> int:
    """How many jobs that somebody is there for have not come to rest."""
    ((count,),) = connection.execute(_UNFINISHED.encode()).fetchall()
    return int(count)
