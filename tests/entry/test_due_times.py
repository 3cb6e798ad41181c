"""When a job is due that was enqueued late in a transaction."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from sa_jobqueue import enqueue
from tests.support.waiting import wait_until


def test_delays_count_from_the_start_of_the_transaction(session: Session) -> None:
    """As the server's now() does, however long ago that was: all jobs of one transaction count from one moment."""
    began = session.scalar(select(func.now()))
    late = select(func.clock_timestamp() - func.now() > timedelta(milliseconds=200))
    wait_until(lambda: session.scalar(late), what="some time in the transaction")
    jobs = [enqueue("k"), enqueue("k", delay=timedelta(seconds=3))]
    session.add_all(jobs)
    session.flush()
    assert [job.run_at - began for job in jobs] == [timedelta(0), timedelta(seconds=3)]
    assert {job.created_at for job in jobs} == {began}
