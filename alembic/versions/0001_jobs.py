"""The job table: version 1 of the queue's schema."""

from __future__ import annotations

from alembic import op

import sa_jobqueue.migrations  # noqa: F401 - registers op.migrate_jobqueue
from sa_jobqueue.models import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.migrate_jobqueue(0, 1, schema=metadata.schema)


def downgrade() -> None:
    op.migrate_jobqueue(1, 0, schema=metadata.schema)
