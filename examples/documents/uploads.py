"""Taking documents in: a document and the job for it are stored by one transaction, or neither is."""

from __future__ import annotations

from hashlib import sha256

from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.documents.embedder import MODEL
from examples.documents.jobs import embed
from examples.documents.models import Document
from examples.documents.sources import Source
from sa_jobqueue import Job, enqueue, ref


def upload(session: Session, source: Source) -> tuple[Document, Job]:
    """Add a document and its job to the session; the caller commits.

    Content that is stored already gives the document that is there, and its job. When another transaction stores the
    same content at the same moment, the flush raises IntegrityError: upload again.
    """
    digest = sha256(source.content).hexdigest()
    document = session.scalar(select(Document).where(Document.sha256 == digest))
    if document is None:
        document = Document(
            title=source.title,
            source=source.origin,
            media_type=source.media_type,
            sha256=digest,
            content=source.content,
        )
        session.add(document)
    job = enqueue(
        embed.call(document_id=ref(document), model=MODEL.version),
        # Everything that decides the outcome: the content and the model.
        idempotency_key=f"embed:{digest}:{MODEL.version}",
    )
    session.add(job)
    return document, job


def replace_content(document: Document, source: Source) -> None:
    """Put right what was uploaded wrongly. Its job, if it is dead, is for a person to redrive."""
    document.title = source.title
    document.source = source.origin
    document.media_type = source.media_type
    document.content = source.content
    document.sha256 = sha256(source.content).hexdigest()
