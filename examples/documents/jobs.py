"""What runs in the background. A runner of these jobs: `sa-jobqueue run examples.documents.jobs:registry`."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from examples.documents.database import engine
from examples.documents.embedder import MODEL, average
from examples.documents.extraction import MalformedDocumentError, chunks, extract
from examples.documents.models import Document, Embedding
from examples.documents.service import rehearse
from sa_jobqueue import Discard, JobContext, Registry, exponential

registry = Registry()


@registry.handler(
    "document.embed",
    queue="ai",
    max_attempts=8,
    # Short, for people who watch. For a real service leave the default: 10 s, doubling.
    retry=exponential(base=timedelta(seconds=1), cap=timedelta(minutes=5)),
    permanent=(MalformedDocumentError,),
)
def embed(ctx: JobContext, document_id: int, model: str) -> Discard | None:
    """Store the embedding of one document. Its row and the end of its job are one transaction: both, or neither."""
    if model != MODEL.version:
        return Discard(f"no model {model!r} here, only {MODEL.version!r}")
    with Session(engine()) as session:
        document = session.get(Document, document_id)
        if document is None:
            return Discard(f"document {document_id} was deleted")
        content, media_type = document.content, document.media_type

    # No transaction is open while the slow part runs.
    parts = chunks(extract(content, media_type))
    rehearse(document_id, attempt=ctx.attempt)
    vector = average(MODEL.embed(parts))

    embedding = {"chunks": len(parts), "vector": vector}
    statement = insert(Embedding).values(document_id=document_id, model_version=model, **embedding)
    with ctx.complete() as session:
        session.execute(
            statement.on_conflict_do_update(
                index_elements=[Embedding.document_id, Embedding.model_version], set_=embedding
            )
        )
    return None
