"""The queue's tables, by the steps that the package ships."""

from __future__ import annotations

from alembic import op

import sa_jobqueue.migrations  # noqa: F401 - registers op.migrate_jobqueue

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.migrate_jobqueue(0, 2)


def downgrade() -> None:
    op.migrate_jobqueue(2, 0)
