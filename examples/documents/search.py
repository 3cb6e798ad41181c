"""Finding documents by what they say: cosine similarity, computed in the database.

With many documents an index for vectors (the extension pgvector) takes the place of the sum over the coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import REAL, cast, column, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from examples.documents.embedder import MODEL
from examples.documents.models import Document, Embedding


@dataclass(frozen=True, slots=True)
class Hit:
    """One document that was found; `score` is the cosine, at most 1."""

    score: float
    title: str
    source: str


def search(session: Session, text: str, *, limit: int = 3) -> list[Hit]:
    """The documents nearest to the text, the best first."""
    (asked,) = MODEL.embed([text])
    kind = ARRAY(REAL, dimensions=1)
    pairs = (
        func.unnest(Embedding.vector, cast(literal(asked, kind), kind))
        .table_valued(column("stored", REAL), column("asked", REAL))
        .render_derived(name="pairs")
    )
    # Both vectors have length 1: their product is the cosine.
    score = select(func.sum(pairs.c.stored * pairs.c.asked)).scalar_subquery()
    rows = session.execute(
        select(score.label("score"), Document.title, Document.source)
        .join(Embedding, Embedding.document_id == Document.id)
        .where(Embedding.model_version == MODEL.version)
        .order_by(score.desc(), Document.id)
        .limit(limit)
    )
    return [Hit(*row) for row in rows]
