"""Reprs end up in logs: none of a record of ours shows what an application has put into a job."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from sa_jobqueue.records import ClaimedJob, HandlerCall, NewJob, Settlement
from sa_jobqueue.states import Verb
from sa_jobqueue.views import JobDetails, JobProgress

SECRET = "S3CR3T-42"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELD = {"token": SECRET}
NOTHING: dict[str, Any] = dict.fromkeys(one.name for one in fields(JobDetails))
DETAILS = NOTHING | dict.fromkeys(("payload", "result", "trace_context"), HELD) | {"id": 7}


@pytest.mark.parametrize(
    "record",
    [
        ClaimedJob(7, uuid4(), "k", "q", HELD, 1, 5, 1, 0, 5, NOW, NOW, None, False),
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
