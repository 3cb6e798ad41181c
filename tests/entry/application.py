"""A small application: a table of its own with a foreign key to jobs, as users have it."""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import Column, ForeignKey, Table
from sqlalchemy.orm import (
    DeclarativeBase,
    DynamicMapped,
    Mapped,
    WriteOnlyMapped,
    mapped_column,
    relationship,
)

from sa_jobqueue import Job


class Base(DeclarativeBase):
    """The application's own base: it knows nothing of the queue's."""


related_jobs = Table(
    "related_jobs",
    Base.metadata,
    Column("document_id", ForeignKey("documents.id"), primary_key=True),
    Column("job_id", ForeignKey(Job.__table__.c.id), primary_key=True),
)


written_jobs, queried_jobs, raising_jobs = (
    Table(
        name,
        Base.metadata,
        Column("folder_id", ForeignKey("folders.id"), primary_key=True),
        Column("job_id", ForeignKey(Job.__table__.c.id), primary_key=True),
    )
    for name in ("written_jobs", "queried_jobs", "raising_jobs")
)


class Document(Base):
    """A business object with the job that works on it, and others that concern it."""

    __tablename__ = "documents"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))
    job: Mapped[Job | None] = relationship(Job)
    jobs: Mapped[list[Job]] = relationship(Job, secondary=related_jobs)


class Ticket(Base):
    """A business object whose key the client makes."""

    __tablename__ = "tickets"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    title: Mapped[str]
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))
    job: Mapped[Job | None] = relationship(Job)


class Comment(Base):
    """Known to its job from both sides."""

    __tablename__ = "comments"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))
    job: Mapped[Job | None] = relationship(Job, back_populates="comments")


class Review(Base):
    """Known to its job from the job's side only."""

    __tablename__ = "reviews"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))


class Folder(Base):
    """With collections of jobs that are never loaded, and one that is loaded only when somebody asks for it."""

    __tablename__ = "folders"

    id: Mapped[int] = mapped_column(primary_key=True)
    written: WriteOnlyMapped[Job] = relationship(Job, secondary=written_jobs)
    queried: DynamicMapped[Job] = relationship(Job, secondary=queried_jobs)
    raising: Mapped[list[Job]] = relationship(
        Job, secondary=raising_jobs, back_populates="folders", lazy="raise"
    )


# As an application may: the class is not its own, the relationships are.
Job.comments = relationship(Comment, back_populates="job")  # type: ignore[attr-defined]
Job.reviews = relationship(Review)  # type: ignore[attr-defined]
Job.folders = relationship(Folder, secondary=raising_jobs, back_populates="raising")  # type: ignore[attr-defined]
