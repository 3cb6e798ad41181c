"""What lies before the marks costs a claim nothing, dead or alive, whatever the planner knows about the table."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import create_engine

from sa_jobqueue.records import PRIORITIES, SMALLEST_ID, Mark, Settlement
from sa_jobqueue.runner.low_water import GRACE, LONGEST_INTERVAL, LowWater, sight
from sa_jobqueue.statements.claim import candidates, claim
from sa_jobqueue.states import Verb
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing.server import connect
from tests.plans.conftest import QUEUES, Table
from tests.support.explain import Plan, explain
from tests.support.waiting import wait_until

MINUTE = timedelta(minutes=1)
PRIMARY, READY_INDEX = "jobqueue_jobs_pkey", "jobqueue_jobs_ready_idx"
ALL_QUEUES = [f"q{number}" for number in range(QUEUES)]


def parameters(queues: Sequence[str], quota: int, marks: Sequence[Mark | None]) -> dict[str, Any]:
    return {
        "queues": list(queues),
        "quotas": [quota] * len(queues),
        "kinds": ["test"],
        "token": uuid.uuid4(),
        "lease": MINUTE,
        "runner": "planner",
        "low_times": [mark and mark.run_at for mark in marks],
        "low_ids": [mark and mark.id for mark in marks],
    }


def time_of(table: Table) -> datetime:
    """Between the due jobs: of a hundred, due a second apart from now back, some are before it and some behind it."""
    with connect(table.url) as connection:
        query = "SELECT max(run_at) - interval '50 s' FROM jobqueue_jobs WHERE status = 'ready' AND run_at <= now()"
        row = connection.execute(query).fetchone()
    assert row is not None
    time: datetime = row[0]
    return time


def test_a_mark_is_a_bound_of_the_index(loaded: Table) -> None:
    """Rows before it are not read and thrown away: the scan begins behind it."""
    marks = [Mark(time_of(loaded), SMALLEST_ID)] * (PRIORITIES * QUEUES)
    given = parameters(ALL_QUEUES, 20, marks)
    plan = loaded.explain(claim(), given)
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY, READY_INDEX}
    assert plan.root["Actual Rows"] == 51
    (scan,) = [node for node in plan.nodes if node.get("Index Name") == READY_INDEX]
    assert "ROW(run_at, id) > ROW(" in scan["Index Cond"]
    assert "run_at" not in scan["Filter"]
    assert scan.get("Rows Removed by Filter", 0) == 0
    plan = loaded.explain(
        candidates(), {name: given[name] for name in ("queues", "quotas", "kinds", "low_times", "low_ids")}
    )
    assert (plan.scanned, plan.indexes, plan.root["Actual Rows"]) == ([], {READY_INDEX}, 51)


def test_the_priorities_are_looked_at_in_order_behind_marks(loaded: Table) -> None:
    """The series of priorities is scanned upwards and outermost, also where each has a mark of its own."""
    marks = [Mark(time_of(loaded), SMALLEST_ID) if priority % 2 else None for priority in range(PRIORITIES)]
    plan = loaded.explain(claim(), parameters(["q0"], 3, marks))
    (series,) = [node for node in plan.nodes if node.get("Function Name") == "generate_series"]
    assert series["Node Type"] == "Function Scan"
    assert series["Parent Relationship"] == "Outer"
    assert not [
        node for node in plan.nodes if node["Node Type"] in ("Hash Join", "Merge Join", "Materialize")
    ]


def test_marks_of_the_future_cost_no_more_than_an_empty_queue(loaded: Table) -> None:
    """Nothing is behind them: each branch goes down the index once."""
    ahead = [Mark(time_of(loaded) + timedelta(hours=1), SMALLEST_ID)] * PRIORITIES
    plan = loaded.explain(claim(), parameters(["q0"], 10, ahead))
    empty = loaded.explain(claim(), parameters(["no such queue"], 10, [None] * PRIORITIES))
    assert plan.root["Actual Rows"] == 0
    assert plan.buffers <= empty.buffers + PRIORITIES


class Pushed:
    """A runner's claims and completions, without handlers; what a claim would touch then."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = create_engine(url)
        self._store = Store(self._engine, name="pusher")
        self._low_water = LowWater()
        self._pushes = 0.0

    def push(self, count: int) -> None:
        """Enqueue and do so many, behind the marks but for a full look at the beginning."""
        self._pushes += 2 * LONGEST_INTERVAL
        with connect(self._url) as connection:
            # Due a while ago, as jobs of a backlog are.
            connection.execute(
                "INSERT INTO jobqueue_jobs (kind, run_at) SELECT 'test', now() - %s FROM generate_series(1, %s)",
                [2 * GRACE, count],
            )
        done = 0
        while done < count:
            behind = self._low_water.behind(["default"], self._pushes)
            now = None if behind else self._store.now()
            asked, token = {"default": min(500, count - done)}, uuid.uuid4()
            answer = self._store.claim_behind(behind, token=token, quotas=asked, kinds=["test"], lease=MINUTE)
            got = {"default": len(answer.jobs)}
            assert got == asked
            seen = sight(answer, seconds=0.0, now=now)
            self._low_water = self._low_water.looked(asked, got, behind, seen, now=self._pushes, jitter=0.0)
            self._store.settle([Settlement(job.id, token, Verb.COMPLETE) for job in answer.jobs])
            done += len(answer.jobs)

    def behind(self) -> Plan:
        """A claim behind the marks, after so much."""
        return self._explain(self._low_water.marks["default"])

    def full(self) -> Plan:
        """A claim that begins with the first job."""
        return self._explain([None] * PRIORITIES)

    def _explain(self, marks: Sequence[Mark | None]) -> Plan:
        return explain(self._url, claim(), parameters(["default"], 10, marks))

    def close(self) -> None:
        self._store.close()
        self._engine.dispose()


def test_claims_stay_flat_under_an_old_snapshot(database_url: str) -> None:
    """Dead versions can't be removed while somebody's snapshot may see them: claims behind the marks don't meet them."""
    with connect(database_url) as connection:
        connection.execute("ALTER TABLE jobqueue_jobs SET (autovacuum_enabled = false)")
    with (
        closing(Pushed(database_url)) as pushed,
        connect(database_url) as somebody,
        connect(database_url) as vacuum,
    ):
        somebody.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        somebody.execute("SELECT 1 FROM jobqueue_jobs")
        behind, full = [], []
        for _ in range(4):
            pushed.push(2500)
            vacuum.execute("VACUUM ANALYZE jobqueue_jobs")
            behind.append(pushed.behind().buffers)
            full.append(pushed.full().buffers)
        assert full[-1] > 2 * full[0], "the snapshot holds nothing back, and this test says nothing"
        assert behind[-1] <= 1.5 * behind[0]
        assert behind[-1] < full[-1] / 5
        somebody.execute("ROLLBACK")

        def is_clean() -> bool:
            vacuum.execute("VACUUM jobqueue_jobs")
            return pushed.full().buffers <= 1.5 * behind[0]

        wait_until(is_clean, what="a vacuum that nobody holds back")
