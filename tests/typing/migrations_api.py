"""The directive in the form that type checkers know, called as a revision calls it."""

from __future__ import annotations

from alembic import op

from sa_jobqueue.migrations import migrate_jobqueue


def upgrade() -> None:
    migrate_jobqueue(op, 0, 2, schema="jobs")


def downgrade() -> None:
    migrate_jobqueue(op, 2, 0, schema="jobs", drop_jobs=True)


def wrong() -> None:
    migrate_jobqueue(op, "0", 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    migrate_jobqueue(0, 1)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    migrate_jobqueue(op, 0, 1, drop_job=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
