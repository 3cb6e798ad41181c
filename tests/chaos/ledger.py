"""The account, in tables of the application: runs and effects of handlers, and every transition of every job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from tests.support.transitions import CREATE_TRANSITIONS

CREATE = f"""
{CREATE_TRANSITIONS}
CREATE TABLE chaos_runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id bigint, attempt int, pid int,
    began_at timestamptz DEFAULT clock_timestamp(), ended_at timestamptz
);
CREATE TABLE chaos_effects (job_id bigint, xid xid8 DEFAULT pg_current_xact_id());
CREATE TABLE chaos_promises (mark bigint, kind text, fate text);
CREATE TABLE chaos_cancelled (job_id bigint);
CREATE VIEW chaos_audit AS
    SELECT id AS seq, CASE WHEN old_status IS NULL THEN 'INSERT' WHEN new_status IS NULL THEN 'DELETE' ELSE 'UPDATE' END AS op,
        (payload ->> 'mark')::bigint AS mark, coalesce(attempts, old_attempts) AS attempts, old_lease_until AS lease_until,
        at, xid, job_id, kind, old_status, new_status, old_token, new_token, settled_token, leased_by
    FROM transitions;
CREATE VIEW chaos_ends AS
    SELECT DISTINCT ON (job_id) job_id, mark, kind, coalesce(new_status, old_status) AS status, attempts,
        op = 'DELETE' AS pruned
    FROM chaos_audit ORDER BY job_id, seq DESC;
CREATE VIEW chaos_claims AS SELECT * FROM chaos_audit WHERE old_status = 'ready' AND new_status = 'running';
CREATE VIEW chaos_completions AS SELECT * FROM chaos_audit WHERE old_status <> 'done' AND new_status = 'done';
CREATE VIEW chaos_rescues AS SELECT * FROM chaos_audit
    WHERE old_status = 'running' AND new_status <> 'running' AND settled_token IS DISTINCT FROM old_token;
"""


def create(connection: psycopg.Connection[Any]) -> None:
    """The tables and the trigger, beside the tables of the queue."""
    connection.execute(CREATE.encode())


def promise(connection: psycopg.Connection[Any], promises: Iterable[tuple[int, str, str]]) -> None:
    """Put what the producers remember beside what the database holds."""
    with connection.cursor().copy("COPY chaos_promises FROM STDIN") as copy:
        for row in promises:
            copy.write_row(row)
