"""A PostgreSQL job queue that is a SQLAlchemy extension.

    session.add(enqueue("document.embed", {"document_id": 7}))      in the caller's transaction
    op.migrate_jobqueue(0, 2)                                       in the application's Alembic history
    sa-jobqueue run myapp.jobs:jobs                                 the bundled runner
    with ctx.complete() as session:                                 what a handler writes, and the end of its job

These are the public names; a runner inside another program is in `sa_jobqueue.runner`, a person's verbs are in
`sa_jobqueue.admin`, tools for tests in `sa_jobqueue.testing`.
"""

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
    DuplicateKeyError,
    EnqueueError,
    JobCancelledError,
    JobQueueError,
    LeaseLostError,
    PayloadError,
    SchemaVersionError,
    UnfencedWriteError,
    WaitTimeoutError,
)
from sa_jobqueue.handlers import Handler
from sa_jobqueue.models import Job, configure, metadata
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.periods import Period
from sa_jobqueue.providers import PROVIDED
from sa_jobqueue.records import Enqueued, HandlerCall, KeyScope, OnConflict
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import RetryPolicy, delays, exponential, fixed, never
from sa_jobqueue.states import JobStatus
from sa_jobqueue.views import FinishedJob
from sa_jobqueue.waiting import wait_for

__all__ = [
    "PROVIDED",
    "ConfigurationError",
    "Discard",
    "DuplicateKeyError",
    "EnqueueError",
    "Enqueued",
    "FinishedJob",
    "Handler",
    "HandlerCall",
    "Job",
    "JobCancelledError",
    "JobContext",
    "JobQueueError",
    "JobStatus",
    "KeyScope",
    "LeaseLostError",
    "OnConflict",
    "PayloadError",
    "Period",
    "Registry",
    "Retry",
    "RetryPolicy",
    "SchemaVersionError",
    "Settle",
    "Snooze",
    "UnfencedWriteError",
    "WaitTimeoutError",
    "configure",
    "delays",
    "enqueue",
    "enqueue_many",
    "exponential",
    "fixed",
    "metadata",
    "never",
    "ref",
    "wait_for",
]
