"""Every transition of every job, written down by the server itself, in the transaction that makes it.

What was rolled back is not in it, and what happened twice is in it twice. Renewals and progress alone are left out.
"""

from __future__ import annotations

#: `application` is the name of the connection that did it. Of what was there before and is there now, NULL is no row.
CREATE_TRANSITIONS = """
CREATE TABLE transitions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT clock_timestamp(),
    xid xid8 DEFAULT pg_current_xact_id(), application text DEFAULT current_setting('application_name'),
    job_id bigint, kind text, payload jsonb, old_status text, new_status text, old_token uuid, new_token uuid,
    settled_token uuid, leased_by text, old_lease_until timestamptz, old_attempts int, attempts int,
    old_returned int, returned int, max_attempts int, cancel_requested boolean, reason text
);
CREATE INDEX ON transitions (job_id, id);
CREATE FUNCTION note_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE job jobqueue_jobs := coalesce(new, old);
BEGIN
    INSERT INTO transitions (job_id, kind, payload, old_status, new_status, old_token, new_token, settled_token,
        leased_by, old_lease_until, old_attempts, attempts, old_returned, returned, max_attempts, cancel_requested, reason)
    VALUES (job.id, job.kind, job.payload, old.status, new.status, old.lease_token, new.lease_token, job.settled_token,
        coalesce(new.leased_by, old.leased_by), old.lease_until, old.attempts, new.attempts, old.returned, new.returned,
        job.max_attempts, job.cancel_requested_at IS NOT NULL, job.reason);
    RETURN NULL;
END $$;
CREATE TRIGGER came_or_went AFTER INSERT OR DELETE ON jobqueue_jobs
    FOR EACH ROW EXECUTE FUNCTION note_transition();
CREATE TRIGGER changed AFTER UPDATE ON jobqueue_jobs FOR EACH ROW
    WHEN ((old.status, old.lease_token, old.attempts, old.returned, old.settled_token)
        IS DISTINCT FROM (new.status, new.lease_token, new.attempts, new.returned, new.settled_token))
    EXECUTE FUNCTION note_transition();
"""
