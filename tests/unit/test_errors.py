"""The errors go where a process pool or a task of another process takes them."""

from __future__ import annotations

import copy
import pickle

import pytest

from sa_jobqueue.errors import DuplicateKeyError, JobQueueError, SchemaVersionError, WaitTimeoutError

ERRORS = [
    JobQueueError("plain", 2),
    SchemaVersionError("old", installed=None, required=2),
    DuplicateKeyError("taken", idempotency_key="x", job_id=7, status="dead", indexes=(1, 2)),
    WaitTimeoutError("late", job_id=7, status="running"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle(error: JobQueueError) -> None:
    """With its text, what it tells besides, and its notes."""
    error.add_note("a note")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert (twin.args, str(twin)) == (error.args, str(error))
        assert vars(twin) == vars(error)
