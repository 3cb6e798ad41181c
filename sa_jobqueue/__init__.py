"""A PostgreSQL job queue that is a SQLAlchemy extension."""

from __future__ import annotations

from sa_jobqueue.context import JobContext

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
    LeaseLostError,
    PayloadError,
    SchemaVersionError,
    UnfencedWriteError,
)
from sa_jobqueue.models import Job, configure, metadata
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.records import Enqueued
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import delays, exponential, fixed, never
from sa_jobqueue.states import JobStatus

__all__ = [
    "ConfigurationError",
    "Discard",
    "EnqueueError",
    "Enqueued",
    "Job",
    "JobContext",
    "JobQueueError",
    "JobStatus",
    "LeaseLostError",
    "PayloadError",
    "Registry",
    "Retry",
    "SchemaVersionError",
    "Settle",
    "Snooze",
    "UnfencedWriteError",
    "configure",
    "delays",
    "enqueue",
    "enqueue_many",
    "exponential",
    "fixed",
    "metadata",
    "never",
    "ref",
]
