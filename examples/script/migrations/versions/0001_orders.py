"""The application's own table, and those of the queue by the steps that the package ships."""

import sqlalchemy as sa
from alembic import op

import sa_jobqueue.migrations  # noqa: F401 - registers op.migrate_jobqueue

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String, nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("receipt", sa.String),
    )
    op.migrate_jobqueue(0, 2)


def downgrade() -> None:
    op.migrate_jobqueue(2, 0)
    op.drop_table("orders")
