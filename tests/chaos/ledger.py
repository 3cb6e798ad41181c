"""The account, in tables of the application: runs and effects of handlers, and every transition of every job.

A trigger writes down the transitions, in the transaction that makes them: what was rolled back is not in it, and what
happened twice is in it twice. Renewals alone are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

CREATE = """
CREATE TABLE chaos_runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id bigint, attempt int, pid int,
    began_at timestamptz DEFAULT clock_timestamp(), ended_at timestamptz
);
CREATE TABLE chaos_effects (job_id bigint, xid xid8 DEFAULT pg_current_xact_id());
CREATE TABLE chaos_promises (mark bigint, kind text, fate text);
CREATE TABLE chaos_cancelled (job_id bigint);
CREATE TABLE chaos_audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT clock_timestamp(),
    xid xid8 DEFAULT pg_current_xact_id(), op text, job_id bigint, mark bigint, kind text,
    old_status text, new_status text, old_token uuid, new_token uuid, settled_token uuid, attempts int,
    leased_by text, lease_until timestamptz
);
CREATE INDEX ON chaos_audit (job_id, seq);

CREATE FUNCTION chaos_audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE job jobqueue_jobs := CASE tg_op WHEN 'DELETE' THEN old ELSE new END;
BEGIN
    INSERT INTO chaos_audit (op, job_id, mark, kind, old_status, new_status, old_token, new_token, settled_token,
        attempts, leased_by, lease_until)
    VALUES (tg_op, job.id, (job.payload ->> 'mark')::bigint, job.kind,
        CASE WHEN tg_op <> 'INSERT' THEN old.status END, CASE WHEN tg_op <> 'DELETE' THEN new.status END,
        CASE WHEN tg_op <> 'INSERT' THEN old.lease_token END, CASE WHEN tg_op <> 'DELETE' THEN new.lease_token END,
        job.settled_token, job.attempts, job.leased_by,
        CASE WHEN tg_op <> 'INSERT' THEN old.lease_until END);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_came_and_went AFTER INSERT OR DELETE ON jobqueue_jobs
    FOR EACH ROW EXECUTE FUNCTION chaos_audit();
CREATE TRIGGER chaos_changed AFTER UPDATE ON jobqueue_jobs FOR EACH ROW
    WHEN ((old.status, old.lease_token, old.attempts) IS DISTINCT FROM (new.status, new.lease_token, new.attempts))
    EXECUTE FUNCTION chaos_audit();

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
    connection.execute(CREATE)


def promise(connection: psycopg.Connection[Any], promises: Iterable[tuple[int, str, str]]) -> None:
    """Put what the producers remember beside what the database holds."""
    with connection.cursor().copy("COPY chaos_promises FROM STDIN") as copy:
        for row in promises:
            copy.write_row(row)
