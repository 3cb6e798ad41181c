"""Clocks of clients that are ten minutes wrong: nothing that is due, leased or put off goes by them."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from tests.apps.clocks import BACKOFF, DELAY, LEDGER
from tests.support.runners import ROOT, ledger, process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.once

SKEWS = {"ahead": 600, "behind": -600}
#: Slow machines are no fault of a clock, ten minutes are.
SOON = timedelta(minutes=2)


def _skewed(name: str) -> dict[str, str]:
    paths = [str(Path(__file__).parents[1] / "apps" / "skewed"), str(ROOT)]
    return {"PYTHONPATH": os.pathsep.join(paths), "SA_JOBQUEUE_TEST_SKEW": str(SKEWS[name])}


@pytest.mark.slow
def test_only_the_clock_of_the_database_counts(engine: Engine, database_url: str) -> None:
    """Who enqueues and who runs are ahead or behind, in all four ways, each with rescue of the other's jobs."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
    app = "tests.apps.clocks:jobs"
    with (
        process(app, database_url, "--queues", "ahead:8,default:1", env=_skewed("ahead")) as ahead,
        process(app, database_url, "--queues", "behind:8,default:1", env=_skewed("behind")) as behind,
    ):
        wait_until(lambda: "started" in ahead.text and "started" in behind.text)
        for name in SKEWS:
            subprocess.run(
                [sys.executable, "-m", "tests.apps.clocks", *SKEWS],
                cwd=ROOT,
                env={**os.environ, "SA_JOBQUEUE_DATABASE_URL": database_url, **_skewed(name)},
                check=True,
            )
        query = text("SELECT count(*) FROM jobqueue_jobs WHERE status = 'done'")
        with engine.connect() as watcher:
            watcher = watcher.execution_options(isolation_level="AUTOCOMMIT")
            wait_until(lambda: watcher.scalar(query) == 16, what="all jobs")
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT * FROM jobqueue_jobs ORDER BY id")).all()
    entries = ledger(engine)
    for job in stored:
        runs = [entry for entry in entries if entry.job_id == job.id]
        assert len(runs) == job.attempts == (2 if job.kind == "fail-once" else 1)
        assert {round(entry.skew / 600) * 600 for entry in runs} == {SKEWS[job.queue]}
        delay = job.run_at - job.created_at if job.kind == "note" else timedelta(0)
        assert delay in (timedelta(0), DELAY)
        assert delay <= runs[0].at - job.created_at < delay + SOON
        if job.kind == "fail-once":
            assert BACKOFF <= runs[1].at - runs[0].at < BACKOFF + SOON
    assert sum(job.run_at - job.created_at == DELAY for job in stored if job.kind == "note") == 4
    assert not [job for job in stored if job.kind == "long" and job.errors]
