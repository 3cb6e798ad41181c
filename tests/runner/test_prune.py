"""Runners prune: by default, little by little, and whatever happens to one of them."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine, text

from sa_jobqueue.events import JobsPruned
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Retention
from sa_jobqueue.states import JobStatus
from tests.support.runners import Recorder, process, running
from tests.support.waiting import wait_until

APP = "tests.apps.ledger:jobs"
BATCH = 500
FILL = """
    INSERT INTO jobqueue_jobs (kind, status, run_at, created_at, finished_at)
    SELECT 'old', :status, now() - interval '9 years', now() - interval '9 years',
        CASE WHEN :finished THEN now() - CAST(:age AS interval) - make_interval(secs => i) END
    FROM generate_series(1, :count) AS i
"""
#: A foreign key without an index, a slow disk: each delete behind the first thousand takes its time.
SLOW = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF old.id > 1000 THEN PERFORM pg_sleep(0.005); END IF; RETURN old; END $$
"""


def _fill(engine: Engine, status: str, count: int, days: float = 0) -> None:
    with engine.begin() as connection:
        values = {"status": status, "count": count, "age": timedelta(days=days), "finished": days > 0}
        connection.execute(text(FILL), values)


def _counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return dict(
            map(tuple, connection.execute(text("SELECT status, count(*) FROM jobqueue_jobs GROUP BY status")))
        )


def _registry() -> Registry:
    registry = Registry()
    registry.handler("test")(lambda: None)
    return registry


def test_a_runner_prunes_by_default(engine: Engine, database_url: str) -> None:
    """Nobody need think of it: old done and cancelled jobs go, dead ones and everything unfinished stay."""
    for status in ("done", "cancelled", "dead"):
        _fill(engine, status, 3, days=3.1)
        _fill(engine, status, 2, days=2.9)
    _fill(engine, "ready", 4)
    with running(_registry(), database_url) as recorder:
        told = recorder.wait_for(JobsPruned, count=2)
    assert [(event.status, event.count) for event in told] == [(JobStatus.DONE, 3), (JobStatus.CANCELLED, 3)]
    assert _counts(engine) == {"done": 2, "cancelled": 2, "dead": 5, "ready": 4}


def test_a_runner_keeps_for_ever_what_it_is_told_to(engine: Engine, database_url: str) -> None:
    """Its sweep goes on to the next status."""
    for status in ("done", "cancelled", "dead"):
        _fill(engine, status, 3, days=4000)
    with running(_registry(), database_url, retention=Retention(done=None)) as recorder:
        (told,) = recorder.wait_for(JobsPruned)
    assert (told.status, told.count) == (JobStatus.CANCELLED, 3)
    assert _counts(engine) == {"done": 3, "dead": 3}


def test_a_job_done_is_gone_with_the_next_prune_where_nothing_is_kept(
    engine: Engine, database_url: str
) -> None:
    """A retention of nothing deletes what the runner itself has just done, again and again."""
    with running(
        _registry(),
        database_url,
        retention=Retention(done=timedelta(0)),
        prune_interval=timedelta(milliseconds=20),
    ) as recorder:
        for _ in range(2):
            with engine.begin() as connection:
                connection.execute(text("INSERT INTO jobqueue_jobs (kind) VALUES ('test')"))
            wait_until(lambda: _counts(engine) == {}, what="the end of the job")
    assert sum(event.count for event in recorder.of(JobsPruned)) == 2


def test_a_kill_half_way_loses_no_progress(engine: Engine, database_url: str) -> None:
    """Each batch is a transaction of its own: what a killed runner has pruned stays pruned, the next one does the rest."""
    _fill(engine, "done", 2000, days=9)
    with engine.begin() as connection:
        connection.execute(text(SLOW))
        # The oldest have the highest ids: they are turned round, so that the first thousand go quickly.
        connection.execute(
            text("UPDATE jobqueue_jobs SET finished_at = finished_at + make_interval(secs => 2 * id)")
        )
        connection.execute(
            text("CREATE TRIGGER slow BEFORE DELETE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION slow()")
        )
    _fill(engine, "dead", 10, days=9)
    _fill(engine, "done", 10, days=2)
    _fill(engine, "ready", 10)
    with process(APP, database_url) as doomed:
        wait_until(lambda: _counts(engine)["done"] <= 1010, timeout=30, what="two batches")
        doomed.kill()
    assert BATCH < _counts(engine)["done"] <= 1010
    with engine.begin() as connection:  # waits for what the killed one had sent
        connection.execute(text("DROP TRIGGER slow ON jobqueue_jobs"))
    with process(APP, database_url) as second:
        wait_until(lambda: "pruned" in second.text, timeout=30, what="its log")
    assert _counts(engine) == {"done": 10, "dead": 10, "ready": 10}


def test_two_runners_prune_together(engine: Engine, database_url: str) -> None:
    """Started at the same instant they share the work: every old job goes once, and neither fails."""
    _fill(engine, "done", 20 * BATCH, days=9)
    with running(_registry(), database_url) as one, running(_registry(), database_url) as other:
        wait_until(lambda: _counts(engine) == {}, timeout=30, what="the end of the backlog")
        wait_until(lambda: sum(event.count for event in _pruned(one, other)) == 20 * BATCH)


def _pruned(*recorders: Recorder) -> list[JobsPruned]:
    return [event for recorder in recorders for event in recorder.of(JobsPruned)]
