"""The application's own tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("id", sa.BigInteger, sa.Identity(), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("octet_length(content) > 0", name="documents_content_check"),
        sa.PrimaryKeyConstraint("id", name="documents_pkey"),
        sa.UniqueConstraint("sha256", name="documents_sha256_key"),
    )
    op.create_table(
        "embeddings",
        sa.Column("document_id", sa.BigInteger, nullable=False),
        sa.Column("model_version", sa.Text, nullable=False),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("vector", ARRAY(sa.REAL, dimensions=1), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name="embeddings_document_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("document_id", "model_version", name="embeddings_pkey"),
    )


def downgrade() -> None:
    op.drop_table("embeddings")
    op.drop_table("documents")
