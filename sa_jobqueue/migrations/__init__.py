"""The schema of the queue as numbered, frozen steps for an application's own Alembic history.

    import sa_jobqueue.migrations

    def upgrade() -> None:
        op.migrate_jobqueue(0, 2)

    def downgrade() -> None:
        op.migrate_jobqueue(2, 0)

Type checkers know nothing of directives: `migrate_jobqueue(op, 0, 2)`, imported from here, is the same for them.
An application that has version 1 writes a new revision with `op.migrate_jobqueue(1, 2)`, and `(2, 1)` for the way back.
A step is never changed once released. Steps use `alembic` and `sqlalchemy` alone, never the layers above: the models
move on, a step must not. They read nothing back, so `--sql` works, and run in the migration's own transaction. A
downgrade that would drop jobs is refused by the database unless the revision says `drop_jobs=True`.
"""

from __future__ import annotations

from sa_jobqueue.migrations.directive import migrate_jobqueue
from sa_jobqueue.migrations.steps import LATEST

__all__ = ["LATEST", "migrate_jobqueue"]
