"""A flood of jobs that a runner doesn't know: its own work goes on, and theirs is there for whoever knows them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.events import JobSettled, UnknownKinds, UnknownKindsPostponed
from sa_jobqueue.maintenance import unknown
from sa_jobqueue.registry import Registry
from tests.support.runners import add, row, running
from tests.support.waiting import wait_until

FLOOD = 3000


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks in the rhythm of a test."""
    monkeypatch.setattr(unknown, "LOOK_INTERVAL", 0.05)


def registry_of(kind: str) -> Registry:
    registry = Registry()
    registry.handler(kind)(lambda: None)
    return registry


def flood(engine: Engine, kind: str, queue: str = "default") -> None:
    with engine.begin() as connection:
        query = "INSERT INTO jobqueue_jobs (kind, queue) SELECT :kind, :queue FROM generate_series(1, :n)"
        connection.execute(text(query), {"kind": kind, "queue": queue, "n": FLOOD})


def counts(engine: Engine, kind: str) -> dict[str, int]:
    """How many jobs are in which state, the moved ones apart from the due ones."""
    query = (
        "SELECT CASE WHEN status = 'ready' AND run_at > now() THEN 'moved' ELSE status END, count(*)"
        " FROM jobqueue_jobs WHERE kind = :kind GROUP BY 1"
    )
    with engine.connect() as connection:
        return dict(map(tuple, connection.execute(text(query), {"kind": kind}).all()))


def spent(engine: Engine, kind: str) -> Any:
    query = "SELECT sum(attempts) FROM jobqueue_jobs WHERE kind = :kind"
    with engine.connect() as connection:
        return connection.execute(text(query), {"kind": kind}).scalar_one()


def test_a_flood_is_moved_out_of_the_way_and_waits_for_its_handler(engine: Engine, database_url: str) -> None:
    """Known jobs behind it run, a thousand stay due, no attempt is spent; who has the handler runs them all."""
    flood(engine, "new")
    with engine.begin() as connection:
        known = [add(connection, "old") for _ in range(10)]
    with running(registry_of("old"), database_url) as recorder:
        recorder.wait_for(JobSettled, count=10)
        (told, *_) = recorder.wait_for(UnknownKindsPostponed)
    assert {row(engine, job).status for job in known} == {"done"}
    assert counts(engine, "new") == {"ready": unknown.KEPT, "moved": FLOOD - unknown.KEPT}
    assert spent(engine, "new") == 0
    assert (told.queues, len(recorder.of(UnknownKinds))) == ({"default": {"new": FLOOD - unknown.KEPT}}, 1)
    with running(registry_of("new"), database_url):
        wait_until(lambda: counts(engine, "new").get("done") == unknown.KEPT)
        with engine.begin() as connection:
            # Their minute passes.
            connection.execute(text("UPDATE jobqueue_jobs SET run_at = run_at - interval '1 min'"))
        wait_until(lambda: counts(engine, "new") == {"done": FLOOD}, timeout=30)
    assert spent(engine, "new") == FLOOD


def test_what_another_runner_has_in_work_stays(engine: Engine, database_url: str) -> None:
    """In a mixed fleet a backlog of somebody else's kind is no flood: a single job in work protects it."""
    flood(engine, "theirs")
    with engine.begin() as connection:
        add(
            connection,
            "theirs",
            status="running",
            attempts=1,
            lease_token="00000000-0000-0000-0000-000000000001",
            lease_until="2100-01-01T00:00:00Z",
        )
    # Of what nobody works on, in another queue, the same looks make a case.
    flood(engine, "nobody's", queue="other")
    with running(registry_of("ours"), database_url, queues={"default": 1, "other": 1}) as recorder:
        (told, *_) = recorder.wait_for(UnknownKindsPostponed)
    assert told.queues == {"other": {"nobody's": FLOOD - unknown.KEPT}}
    assert counts(engine, "theirs") == {"ready": FLOOD, "running": 1}
