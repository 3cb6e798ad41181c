"""The application's tables. The queue's table is not here: it has a MetaData of its own."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    REAL,
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    LargeBinary,
    MetaData,
    Text,
    func,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "uq": "%(table_name)s_%(column_0_name)s_key",
            "fk": "%(table_name)s_%(column_0_name)s_fkey",
            "ck": "%(table_name)s_%(constraint_name)s_check",
        }
    )


class Document(Base):
    """What somebody uploaded, byte for byte; the same content is stored once."""

    __tablename__ = "documents"
    __table_args__ = (CheckConstraint("octet_length(content) > 0", name="content"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    title: Mapped[str] = mapped_column(Text)
    source: Mapped[str] = mapped_column(Text)
    media_type: Mapped[str] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(Text, unique=True)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class Embedding(Base):
    """One vector for each document and model version, of length 1: the mean of the vectors of its chunks."""

    __tablename__ = "embeddings"

    document_id: Mapped[int] = mapped_column(ForeignKey(Document.id, ondelete="CASCADE"), primary_key=True)
    model_version: Mapped[str] = mapped_column(Text, primary_key=True)
    chunks: Mapped[int]
    vector: Mapped[list[float]] = mapped_column(ARRAY(REAL, dimensions=1))
