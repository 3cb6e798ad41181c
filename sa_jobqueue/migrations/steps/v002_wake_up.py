"""Version 2: runners that wait are told of new jobs: `jobqueue_idle`, and a trigger on `jobqueue_jobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

# Whoever adds jobs runs the function with the rights of its owner. So nothing in it may depend on a search_path: every
# name is qualified, operators too, and a schema that was not named is fixed to the one where the table is. Of a backend's
# time an INSERT costs 5.5 microseconds more by it, where 32.5 are its own. SET search_path in the function would cost 1.5
# more, a condition in the trigger (WHEN) 3; the EXCEPTION block, of which no path leads to a failed INSERT, costs 0.5.
_CREATE = """\
DO $install$ DECLARE place text := (SELECT relnamespace::regnamespace FROM pg_class
    WHERE oid = $name$%(fullname)s$name$::regclass); BEGIN
IF to_regclass(place || '.jobqueue_idle') IS NULL THEN
    RAISE EXCEPTION USING
        MESSAGE = 'search_path puts jobqueue_idle into another schema than that of jobqueue_jobs, ' || place,
        HINT = 'Name it in the revision: op.migrate_jobqueue(1, 2, schema=...).';
END IF;
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

_DROP = """\
DO $remove$ DECLARE place text := (SELECT relnamespace::regnamespace FROM pg_class
    WHERE oid = $name$%(fullname)s$name$::regclass); BEGIN
EXECUTE replace('DROP TRIGGER jobqueue_wake ON @place@.jobqueue_jobs', '@place@', place);
EXECUTE replace('DROP FUNCTION @place@.jobqueue_wake()', '@place@', place);
END $remove$
"""


def upgrade(op: Operations, schema: str | None) -> None:
    """Create the table, the function and the trigger. Inserts of jobs wait from the trigger to the transaction's end."""
    table = op.create_table(
        "jobqueue_idle",
        sa.Column("runner_id", sa.Text, primary_key=True),
        sa.Column("waiting_until", sa.DateTime(timezone=True), nullable=False),
        schema=schema,
        prefixes=["UNLOGGED"],
    )
    # A few rows, each written once a second: room for their next versions in the same page.
    _execute(
        op,
        "ALTER TABLE %(fullname)s SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0,"
        " autovacuum_vacuum_threshold = 500)",
        table,
    )
    jobs = sa.Table("jobqueue_jobs", sa.MetaData(), schema=schema)
    _execute(op, "COMMENT ON TABLE %(fullname)s IS 'sa_jobqueue schema version 2'", jobs)
    _execute(op, _CREATE, jobs)


def downgrade(op: Operations, schema: str | None, *, drop_jobs: bool) -> None:  # noqa: ARG001 - it drops none
    """Drop all three; jobs stay as they are."""
    jobs = sa.Table("jobqueue_jobs", sa.MetaData(), schema=schema)
    _execute(op, _DROP, jobs)
    op.drop_table("jobqueue_idle", schema=schema)
    _execute(op, "COMMENT ON TABLE %(fullname)s IS 'sa_jobqueue schema version 1'", jobs)


def _execute(op: Operations, text: str, table: sa.Table) -> None:
    op.execute(sa.DDL(text).against(table))  # type: ignore[no-untyped-call]  # SQLAlchemy left it untyped
