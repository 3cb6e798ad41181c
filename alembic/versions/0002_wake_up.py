"""Runners that wait are told of new jobs: version 2 of the queue's schema."""

from __future__ import annotations

from alembic import op

import sa_jobqueue.migrations  # noqa: F401 - registers op.migrate_jobqueue
from sa_jobqueue.models import metadata

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.migrate_jobqueue(1, 2, schema=metadata.schema)


def downgrade() -> None:
    op.migrate_jobqueue(2, 1, schema=metadata.schema)
