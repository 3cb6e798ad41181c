"""Reprs end up in logs: none of a record of ours shows what an application has put into a job."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from sa_jobqueue.context import JobContext, context_of
from sa_jobqueue.entry.request import enqueue
from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.payloads import encode_result
from sa_jobqueue.records import DEFAULT_MAX_PAYLOAD_BYTES, ClaimedJob, HandlerCall, NewJob, Settlement
from sa_jobqueue.registry import Registry
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.views import FinishedJob, JobDetails, JobProgress

SECRET = "S3CR3T-42"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELD = {"token": SECRET}
NOTHING: dict[str, Any] = dict.fromkeys(one.name for one in fields(JobDetails))
DETAILS = NOTHING | dict.fromkeys(("payload", "result", "trace_context"), HELD) | {"id": 7}


jobs = Registry()


@jobs.handler("k")
def handler(ctx: JobContext, user: int, token: str) -> None: ...


CLAIMED = ClaimedJob(7, uuid4(), "k", "q", HELD, 1, 5, 1, 0, 5, NOW, NOW, None, False)


@pytest.mark.parametrize(
    "record",
    [
        context_of(CLAIMED, runner_id="r"),
        enqueue("k", HELD),
        handler,
        handler.call(user=7, token=SECRET),
        FinishedJob(
            id=7,
            kind="k",
            status=JobStatus.DEAD,
            result=HELD,
            reason=None,
            last_error=SECRET,
            finished_at=NOW,
        ),
        CLAIMED,
        HandlerCall("k", HELD, "q", 5, None, 1),
        JobDetails(**DETAILS | {"progress": JobProgress(0.5, SECRET)}),
        NewJob(kind="k", payload=str(HELD)),
        Settlement(7, uuid4(), Verb.COMPLETE, result=SECRET),
        Settlement(7, uuid4(), Verb.RETRY, error=SECRET, reason=SECRET),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_repr_shows_which_job_it_is_and_no_more(record: Any) -> None:
    """Enough to find the row, nothing of the payload, the result or an error."""
    for shown in (repr(record), str(record), f"{[record]}"):
        assert SECRET not in shown
        assert "'k'" in shown or "id=7" in shown


CONTEXT = context_of(CLAIMED, runner_id="r")


@pytest.mark.parametrize(
    "act",
    [
        lambda: enqueue(HELD, "k"),  # type: ignore[arg-type]
        lambda: enqueue("k", {**HELD, "at": NOW}),
        lambda: enqueue("k", {**HELD, "deep": [{1: 2}]}),
        lambda: enqueue("k", {**HELD, "long": "x" * DEFAULT_MAX_PAYLOAD_BYTES}),
        lambda: enqueue("k", {"token": f"{SECRET}\0"}),
        lambda: enqueue(handler.call(7, SECRET), HELD),  # type: ignore[call-overload]
        lambda: handler.call(SECRET),  # type: ignore[call-arg, arg-type]
        lambda: handler.call(7, SECRET, HELD),  # type: ignore[call-arg]
        *(
            lambda name=name: enqueue("k", {}, **{name: HELD})
            for name in (
                "queue",
                "priority",
                "max_attempts",
                "run_at",
                "delay",
                "expires_at",
                "idempotency_key",
            )
        ),
        *(
            lambda changes=changes: enqueue("k", {}, idempotency_key="x", **changes)
            for changes in ({"key_scope": HELD}, {"on_conflict": HELD})
        ),
        lambda: enqueue("k", HELD, unique_by=["missing"]),
        lambda: enqueue("k", HELD, unique_by=[HELD]),  # type: ignore[list-item]
        lambda: enqueue("k", HELD, key_scope="unfinished"),
        lambda: setattr(enqueue("k", HELD), "payload", {**HELD, "user": 7}),
        lambda: handler.bind(CONTEXT, {**HELD, "user": 7, "more": SECRET}),
        lambda: handler.bind(CONTEXT, [SECRET]),
        lambda: handler.bind(CONTEXT, HELD),
        lambda: CONTEXT.progress(HELD),  # type: ignore[arg-type]
        lambda: CONTEXT.progress(0.5, HELD),  # type: ignore[arg-type]
        lambda: CONTEXT.complete(),
        lambda: Retry(after=HELD),  # type: ignore[arg-type]
        lambda: Retry(reason=HELD),  # type: ignore[arg-type]
        lambda: Snooze(HELD),  # type: ignore[arg-type]
        lambda: Discard(HELD),  # type: ignore[arg-type]
        lambda: Settle(HELD),  # type: ignore[arg-type]
        lambda: encode_result({"token": {SECRET}}),
    ],
)
def test_what_is_refused_is_not_quoted(act: Callable[[], object]) -> None:
    """Whatever is wrong with an argument, and also where a payload was passed in the place of another one."""
    with pytest.raises((TypeError, ValueError, RuntimeError, JobQueueError)) as caught:
        act()
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
