"""Version 1: the job table with its CHECKs, partial indexes and storage parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

if TYPE_CHECKING:
    from alembic.operations import Operations

_TIMESTAMP = sa.DateTime(timezone=True)


def upgrade(op: Operations, schema: str | None) -> None:
    """Create `jobqueue_jobs`, and before it the schema when one is named that is not there."""
    if schema is not None:
        # A look first: CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where it has nothing to do.
        missing = (
            "DO $jobqueue$ BEGIN IF to_regnamespace($name$%(schema)s$name$) IS NULL THEN"
            " CREATE SCHEMA %(schema)s; END IF; END $jobqueue$"
        )
        op.execute(sa.DDL(missing).against(_table(schema)))  # type: ignore[no-untyped-call]  # SQLAlchemy left it untyped
    table = op.create_table(
        "jobqueue_jobs",
        sa.Column("id", sa.BigInteger, sa.Identity(always=False), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False, server_default=sa.text("'default'")),
        sa.Column("payload", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.Column("payload_version", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("status", sa.Text, nullable=False, server_default=sa.text("'ready'")),
        sa.Column("priority", sa.SmallInteger, nullable=False, server_default=sa.text("5")),
        sa.Column("run_at", _TIMESTAMP, nullable=False, server_default=sa.text("now()")),
        sa.Column("expires_at", _TIMESTAMP),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("returned", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("max_attempts", sa.Integer, nullable=False, server_default=sa.text("5")),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_until", _TIMESTAMP),
        sa.Column("leased_by", sa.Text),
        sa.Column("settled_token", sa.Uuid),
        sa.Column("cancel_requested_at", _TIMESTAMP),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("key_scope", sa.Text),
        sa.Column("unique_key", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("result", JSONB),
        sa.Column("progress", JSONB),
        sa.Column("last_error", sa.Text),
        sa.Column("errors", JSONB, nullable=False, server_default=sa.text("'[]'::jsonb")),
        sa.Column("trace_context", JSONB),
        sa.Column("created_at", _TIMESTAMP, nullable=False, server_default=sa.text("now()")),
        sa.Column("updated_at", _TIMESTAMP, nullable=False, server_default=sa.text("now()")),
        sa.Column("finished_at", _TIMESTAMP),
        sa.CheckConstraint(
            "status IN ('ready', 'running', 'done', 'dead', 'cancelled')", name="jobqueue_jobs_status_check"
        ),
        sa.CheckConstraint("priority BETWEEN 0 AND 9", name="jobqueue_jobs_priority_check"),
        sa.CheckConstraint("max_attempts >= 1", name="jobqueue_jobs_max_attempts_check"),
        sa.CheckConstraint("returned BETWEEN 0 AND attempts", name="jobqueue_jobs_attempts_check"),
        sa.CheckConstraint(
            "CASE WHEN status = 'running' THEN lease_token IS NOT NULL AND lease_until IS NOT NULL"
            " ELSE lease_token IS NULL AND lease_until IS NULL END",
            name="jobqueue_jobs_lease_check",
        ),
        sa.CheckConstraint(
            "(status IN ('done', 'dead', 'cancelled')) = (finished_at IS NOT NULL)",
            name="jobqueue_jobs_finished_check",
        ),
        sa.CheckConstraint(
            "CASE WHEN idempotency_key IS NULL THEN key_scope IS NULL AND unique_key IS NULL"
            " ELSE key_scope IS NOT NULL AND key_scope IN ('row', 'unfinished') END",
            name="jobqueue_jobs_key_check",
        ),
        schema=schema,
        comment="sa_jobqueue schema version 1",
    )
    # A statement of its own: tables take storage parameters only since SQLAlchemy 2.1.
    op.execute(
        sa.DDL(  # type: ignore[no-untyped-call]  # as above
            "ALTER TABLE %(fullname)s SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,"
            " autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05)"
        ).against(table)
    )
    op.create_index(
        "jobqueue_jobs_ready_idx",
        "jobqueue_jobs",
        ["queue", "priority", "run_at", "id"],
        schema=schema,
        postgresql_where=sa.text("status = 'ready'"),
    )
    op.create_index(
        "jobqueue_jobs_running_idx",
        "jobqueue_jobs",
        ["lease_until"],
        schema=schema,
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "jobqueue_jobs_unique_key_idx",
        "jobqueue_jobs",
        ["unique_key"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("unique_key IS NOT NULL"),
    )
    op.create_index(
        "jobqueue_jobs_finished_idx",
        "jobqueue_jobs",
        ["status", "finished_at"],
        schema=schema,
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    )


def downgrade(op: Operations, schema: str | None, *, drop_jobs: bool) -> None:
    """Drop `jobqueue_jobs`; while it holds jobs only with `drop_jobs`. The schema stays: other things may be in it."""
    if not drop_jobs:
        # One statement of the server's, so that it also stands in the text of --sql. The lock keeps new jobs out
        # between the look and the drop.
        refusal = (
            "DO $jobqueue$ BEGIN LOCK TABLE %(fullname)s IN ACCESS EXCLUSIVE MODE;"
            " IF EXISTS (SELECT FROM %(fullname)s) THEN"
            " RAISE EXCEPTION 'jobqueue_jobs holds jobs, and this downgrade would drop them' USING HINT ="
            " 'Delete them first, or write op.migrate_jobqueue(1, 0, drop_jobs=True) in the revision.';"
            " END IF; END $jobqueue$"
        )
        op.execute(sa.DDL(refusal).against(_table(schema)))  # type: ignore[no-untyped-call]  # as above
    op.drop_table("jobqueue_jobs", schema=schema)


def _table(schema: str | None) -> sa.Table:
    """The table by its name alone, for DDL that mentions it."""
    return sa.Table("jobqueue_jobs", sa.MetaData(), schema=schema)
