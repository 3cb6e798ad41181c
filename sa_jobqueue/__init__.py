"""A PostgreSQL job queue that is a SQLAlchemy extension."""

from __future__ import annotations

# Imported for their listeners: jobs join every Session's flush, and a stored Job refuses assignments.
from sa_jobqueue.entry import fixed as _fixed  # noqa: F401
from sa_jobqueue.entry import unit_of_work as _unit_of_work  # noqa: F401
from sa_jobqueue.entry.bulk import enqueue_many
from sa_jobqueue.entry.references import ref
from sa_jobqueue.entry.request import enqueue
from sa_jobqueue.errors import (
    ConfigurationError,
    EnqueueError,
    JobQueueError,
    PayloadError,
    SchemaVersionError,
    UnfencedWriteError,
)
from sa_jobqueue.models import Job, configure, metadata
from sa_jobqueue.records import Enqueued
from sa_jobqueue.states import JobStatus

__all__ = [
    "ConfigurationError",
    "EnqueueError",
    "Enqueued",
    "Job",
    "JobQueueError",
    "JobStatus",
    "PayloadError",
    "SchemaVersionError",
    "UnfencedWriteError",
    "configure",
    "enqueue",
    "enqueue_many",
    "metadata",
    "ref",
]
