"""What a handler is told about its job."""

from __future__ import annotations

import copy
import pickle
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import JobCancelledError, LeaseLostError


def make_context(**changes: Any) -> JobContext:
    """A context of a first attempt."""
    values: dict[str, Any] = {
        "id": 17,
        "kind": "document.embed",
        "queue": "ai",
        "payload": {"secret": "hunter2"},
        "attempt": 1,
        "max_attempts": 5,
        "idempotency_key": None,
        "run_at": datetime(2030, 1, 1, tzinfo=UTC),
        "created_at": datetime(2030, 1, 1, tzinfo=UTC),
        "runner_id": "host-1",
    }
    return JobContext(**values | changes)


def test_values_stay_as_they_were_claimed() -> None:
    """A handler can't change what the runner goes by."""
    with pytest.raises(AttributeError):
        make_context().attempt = 3  # type: ignore[misc]


def test_repr_names_the_job_but_not_its_payload() -> None:
    """A context in a log line gives nothing away."""
    text = repr(make_context())
    assert "17" in text
    assert "document.embed" in text
    assert "hunter2" not in text
    assert "_lost" not in text


def test_flags_raised_in_another_thread_are_seen_here() -> None:
    """A handler that works for long sees what a renewal found meanwhile."""
    context = make_context()
    assert (context.lost, context.cancel_requested) == (False, False)
    context.raise_if_lost()
    context.raise_if_cancelled()
    for mark in (context.mark_lost, context.mark_cancel_requested):
        thread = threading.Thread(target=mark)
        thread.start()
        thread.join()
    assert (context.lost, context.cancel_requested) == (True, True)
    with pytest.raises(LeaseLostError, match=r"job 17 \(document\.embed\): the lease is lost"):
        context.raise_if_lost()
    with pytest.raises(JobCancelledError, match=r"job 17 \(document\.embed\): somebody asked to cancel it"):
        context.raise_if_cancelled()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda context: pickle.loads(pickle.dumps(context))]
)
def test_a_copy_is_a_snapshot(copied: Any) -> None:
    """A copy keeps what was known when it was made and follows nothing later."""
    context = make_context()
    context.mark_cancel_requested()
    snapshot = copied(context)
    context.mark_lost()
    assert (snapshot.lost, snapshot.cancel_requested) == (False, True)
    assert (snapshot.id, snapshot.payload, snapshot.run_at) == (context.id, context.payload, context.run_at)
