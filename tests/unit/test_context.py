"""What a handler is told about its job."""

from __future__ import annotations

import copy
import pickle
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from sa_jobqueue.context import JobContext, context_of
from sa_jobqueue.errors import JobCancelledError, LeaseLostError
from sa_jobqueue.records import Progress
from tests.support.executions import claimed_job


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


def test_the_latest_progress_counts() -> None:
    """Each report takes the place of the last; whoever listens is told that there is one, never what."""
    calls = list[None]()
    context = context_of(claimed_job(), runner_id="me", on_progress=lambda: calls.append(None))
    assert context.latest_progress is None
    context.progress(0.4, "page 12")
    context.progress(1)
    context.progress(None, "cleaning up")
    assert context.latest_progress == Progress(None, "cleaning up")
    assert len(calls) == 3
    make_context().progress(0)  # nobody listens


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((1.01,), ValueError, r"progress\(1\.01\): a share is from 0 to 1: divide by the whole"),
        ((-0.1,), ValueError, "a share is from 0 to 1"),
        ((float("nan"),), ValueError, "a share is from 0 to 1"),
        (("0.5",), TypeError, "expected a share from 0 to 1 or None, got str"),
        ((True,), TypeError, "expected a share from 0 to 1 or None, got True"),
        ((0.5, 12), TypeError, r"progress\(text=\.\.\.\): expected a text, got int"),
        ((None,), ValueError, "nothing to tell: pass a share from 0 to 1, a text, or both"),
    ],
)
def test_odd_progress_is_refused_at_the_call(given: Any, error: type[Exception], says: str) -> None:
    """The handler's own line fails, and what was reported before stays."""
    context = make_context()
    context.progress(0.2)
    with pytest.raises(error, match=says):
        context.progress(*given)
    assert context.latest_progress == Progress(0.2)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda context: pickle.loads(pickle.dumps(context))]
)
def test_the_progress_of_a_copy_reaches_nobody(copied: Any) -> None:
    """A copy belongs to no runner: it keeps what was said, and what it says itself is heard by nobody."""
    calls = list[None]()
    context = context_of(claimed_job(), runner_id="me", on_progress=lambda: calls.append(None))
    context.progress(0.4)
    snapshot = copied(context)
    assert snapshot.latest_progress == Progress(0.4)
    snapshot.progress(0.5)
    assert (len(calls), context.latest_progress) == (1, Progress(0.4))
