"""The trigger that tells waiting runners of new jobs, as it belongs to the tables: DDL for `metadata.create_all()`.

An application's database gets the same from the migration steps; a test holds the two together. The setting
`sa_jobqueue.notify` chooses when: `off`, `when-idle` (which is also what everything else means) or `always`. The channel is
named by the table's own number, so that no name of a schema has to fit into it.
"""

from __future__ import annotations

#: The channel is this and the oid of the job table.
CHANNEL_PREFIX = "jobqueue_"
#: The setting that says when a new job is notified, and its value for never.
POLICY_SETTING, POLICY_OFF = "sa_jobqueue.notify", "off"

CREATE = """\
DO $install$ DECLARE place text := (SELECT relnamespace::regnamespace FROM pg_class
    WHERE oid = to_regclass($name$%(fullname)s$name$)); BEGIN
EXECUTE replace($create$
CREATE FUNCTION @place@.jobqueue_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $function$
BEGIN
    -- A notification takes a lock of the whole server at the commit: one only while somebody waits for it.
    IF pg_catalog.current_setting('sa_jobqueue.notify', true) OPERATOR(pg_catalog.=) 'off' THEN
        RETURN NULL;
    ELSIF pg_catalog.current_setting('sa_jobqueue.notify', true) OPERATOR(pg_catalog.=) 'always' THEN
        NULL;
    ELSIF NOT EXISTS (
        SELECT FROM @place@.jobqueue_idle
        WHERE waiting_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
    ) THEN
        RETURN NULL;
    END IF;
    -- A full queue of notifications would make commits fail, and a job is worth more than its hint.
    IF pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5 THEN
        PERFORM pg_catalog.pg_notify(pg_catalog.concat('jobqueue_', TG_RELID), '');
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;  -- the owner lost his right, the schema has another name: that may cost the hint, never the job
END $function$
$create$, '@place@', place);
EXECUTE replace('REVOKE EXECUTE ON FUNCTION @place@.jobqueue_wake() FROM PUBLIC', '@place@', place);
EXECUTE replace($create$
CREATE TRIGGER jobqueue_wake AFTER INSERT ON @place@.jobqueue_jobs
FOR EACH STATEMENT EXECUTE FUNCTION @place@.jobqueue_wake()
$create$, '@place@', place);
END $install$
"""

#: The function, and with it the trigger.
DROP = """\
DO $drop$ BEGIN EXECUTE (
    SELECT 'DROP FUNCTION IF EXISTS ' || relnamespace::regnamespace || '.jobqueue_wake() CASCADE'
    FROM pg_class WHERE oid = to_regclass($name$%(fullname)s$name$)
); END $drop$
"""
