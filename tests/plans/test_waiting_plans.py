"""To wait costs a few pages, however many jobs there are for later."""

from __future__ import annotations

from datetime import timedelta

from sa_jobqueue.statements.idle import stop_waiting, wait_for_jobs
from tests.plans.conftest import QUEUES, Table

READY_INDEX = "jobqueue_jobs_ready_idx"


def test_to_wait_reads_the_heads_of_the_future(loaded: Table) -> None:
    """One look into the index for each queue and priority; 50,000 jobs of tomorrow are not walked."""
    parameters = {
        "runner": "runner-1",
        "wait": timedelta(seconds=4),
        "queues": [*(f"q{number}" for number in range(QUEUES)), "scheduled"],
        "kinds": ["test"],
    }
    plan = loaded.explain(wait_for_jobs(), parameters)
    assert "jobqueue_jobs" not in plan.scanned
    assert READY_INDEX in plan.indexes
    assert plan.buffers < 500


def test_a_job_within_the_time_ends_the_look(loaded: Table) -> None:
    """Of all jobs that become due within the time, the first of each queue and priority is read."""
    parameters = {
        "runner": "runner-1",
        "wait": timedelta(days=2),
        "queues": ["q0", "scheduled"],
        "kinds": ["test"],
    }
    plan = loaded.explain(wait_for_jobs(), parameters)
    assert "jobqueue_jobs" not in plan.scanned
    assert plan.buffers < 500
    assert max(node["Actual Rows"] for node in plan.nodes) <= 20


def test_to_stop_waiting_touches_no_job(loaded: Table) -> None:
    """The one row by its key."""
    plan = loaded.explain(stop_waiting(), {"runner": "runner-1"})
    assert plan.indexes <= {"jobqueue_idle_pkey"}
    assert plan.buffers < 10
