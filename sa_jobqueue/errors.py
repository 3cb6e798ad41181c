"""The errors of the library, by what went wrong; that of a server for tests is in `sa_jobqueue.testing`.

    JobQueueError
    ├── ConfigurationError      settings that can't work (names them and the cure)
    │   ├── SchemaVersionError  the database lacks the tables, or has older ones than this release needs
    │   └── RegistryNotFoundError  (in `loading`) the module or the registry that was named can't be had
    ├── EnqueueError            a job that can't be added to this session or connection
    │   └── DuplicateKeyError   a job whose idempotency key is taken, where on_conflict="raise" asked to be told so
    ├── UnfencedWriteError      an ORM change of a stored Job (names the verb to use instead)
    ├── PayloadError            a stored payload that doesn't fit its handler
    ├── LeaseLostError          this run of a job doesn't own it any more: nothing it writes can land
    ├── WaitTimeoutError        a job that has not ended within the time that somebody would wait for it
    ├── JobCancelledError       somebody asked to cancel the job, and its handler stops for that
    └── DrainError              (in `testing`) a test's drain() that can't go on

Bad arguments raise plain `ValueError` or `TypeError`, as everywhere in Python, before any SQL is sent.
What a handler may *return or raise on purpose* is in `outcomes`; it is no error.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import DontWrapMixin


class JobQueueError(Exception):
    """The root: catch it to catch every error of this library. Each can be pickled, with what it tells besides its text."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the constructor, whose arguments an Exception forgets.
        return _made, (type(self),), {**vars(self), "args": self.args}


def _made(kind: type[JobQueueError]) -> JobQueueError:
    return kind.__new__(kind)


class ConfigurationError(JobQueueError):
    """Settings that can't work together, or not at all."""


class SchemaVersionError(ConfigurationError):
    """The queue's tables are missing from the database or older than this release needs."""

    def __init__(self, message: str, *, installed: int | None, required: int) -> None:
        super().__init__(message)
        self.installed = installed
        self.required = required


class EnqueueError(JobQueueError, DontWrapMixin):
    """A job that can't be added here: a cycle of references, a deleted key holder, a foreign database.

    As it is where a statement of the caller's raises it: SQLAlchemy wraps other errors, and shows parameters with them.
    """


class DuplicateKeyError(EnqueueError):
    """A job's idempotency key is held by another job, and `on_conflict="raise"` asked to be told so.

    The transaction is as it was before the call: it can go on and commit. `job_id` and `status` are those of the holder,
    None where that is another job of the same call, which was not inserted either. `indexes` tell which jobs of
    `enqueue_many()` were refused.
    """

    def __init__(
        self,
        message: str,
        *,
        idempotency_key: str,
        job_id: int | None,
        status: str | None,
        indexes: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        self.job_id = job_id
        self.status = status
        self.indexes = indexes


class UnfencedWriteError(JobQueueError):
    """Somebody changed or deleted a stored Job through the ORM, past the lease that guards it."""


class PayloadError(JobQueueError):
    """A stored payload doesn't fit the signature of the handler that is registered for its kind."""


class LeaseLostError(JobQueueError):
    """This run of a job doesn't own it any more; nothing it writes to the job can land."""


class WaitTimeoutError(JobQueueError, TimeoutError):
    """A job has not ended within the time that somebody would wait for it; it goes on. `status` is that of the last look."""

    def __init__(self, message: str, *, job_id: int, status: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.status = status


class JobCancelledError(JobQueueError):
    """Somebody asked to cancel the job that runs here; a handler that lets this error out is cancelled, not failed."""
