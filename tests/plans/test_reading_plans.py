"""What people read costs a bounded part of the table, whatever lies in it and whatever the planner knows."""

from __future__ import annotations

from typing import Any

import pytest

from sa_jobqueue.queries import detail, listing, stats
from sa_jobqueue.queries.listing import WINDOW, Shape
from sa_jobqueue.records import LARGEST_ID
from sa_jobqueue.states import JobStatus
from tests.plans.conftest import DEAD, READY, RUNNING, Plan, Table

READY_STATUS, RUNNING_STATUS, DONE_STATUS, DEAD_STATUS, CANCELLED_STATUS = JobStatus
PRIMARY, READY_INDEX, RUNNING_INDEX, FINISHED_INDEX, KEY_INDEX = (
    "jobqueue_jobs_pkey",
    "jobqueue_jobs_ready_idx",
    "jobqueue_jobs_running_idx",
    "jobqueue_jobs_finished_idx",
    "jobqueue_jobs_unique_key_idx",
)
#: Both the look for the edge and the walk go down the index and visit each row's page.
WINDOW_BUFFERS = 2 * WINDOW


def explain(table: Table, statement: Any, **given: Any) -> Plan:
    usual = {"before": LARGEST_ID, "amount": 50, "kinds": ["test"], "queues": ["q0"], "key": "k"}
    return table.explain(statement, {**usual, **given})


def test_the_newest_jobs(loaded: Table) -> None:
    """The first page, the commonest look of all, reads its own rows."""
    plan = explain(loaded, listing.newest())
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 50
    assert plan.buffers < 100


def test_ids(loaded: Table) -> None:
    """Jobs that are named are read by their ids."""
    plan = explain(loaded, listing.of_ids(Shape(kinds=True)), ids=loaded.dead)
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.buffers < 1000


@pytest.mark.parametrize(
    "shape",
    [
        Shape(kinds=True),
        Shape(queues=True),
        Shape(key=True),
        Shape(statuses=(CANCELLED_STATUS,)),
        Shape(statuses=(READY_STATUS,), due=True, kinds=True, queues=True),
    ],
)
def test_a_walk_reads_one_window(loaded: Table, shape: Shape) -> None:
    """However rare a match is, one statement looks at one window of the newest jobs, by the primary key."""
    plan = explain(loaded, listing.window(shape), kinds=["rare"])
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.buffers <= WINDOW_BUFFERS
    assert max(node["Actual Rows"] for node in plan.nodes) <= WINDOW


def test_the_holder_of_a_key(loaded: Table) -> None:
    """A key that is held is found by its index."""
    plan = explain(loaded, listing.holder(Shape(key=True)))
    assert plan.scanned == []
    assert plan.indexes == {KEY_INDEX}
    assert plan.buffers < 10


@pytest.mark.parametrize(
    ("shape", "index", "most"),
    [
        (Shape(statuses=(RUNNING_STATUS,)), RUNNING_INDEX, 2 * RUNNING),
        # Some of them are catalog pages: what the statement calls is looked up once in a session.
        (Shape(statuses=(CANCELLED_STATUS,), kinds=True), FINISHED_INDEX, 20),
    ],
)
def test_few_jobs_of_a_status_are_read_by_its_index(
    loaded: Table, shape: Shape, index: str, most: int
) -> None:
    """A status of few jobs costs as much as it has jobs, wherever they lie."""
    plan = explain(loaded, listing.of_statuses(shape))
    assert plan.scanned == []
    assert plan.indexes == {index}
    assert plan.buffers <= most


def test_ready_jobs_of_a_queue_are_read_by_its_part_of_the_index(loaded: Table) -> None:
    """The jobs of other queues, and those for tomorrow in them, cost nothing."""
    shape = Shape(statuses=(READY_STATUS,), queues=True)
    plan = explain(loaded, listing.of_statuses(shape), queues=["scheduled"])
    assert plan.scanned == []
    assert plan.indexes == {READY_INDEX}
    assert plan.root["Actual Rows"] == 50
    population = explain(loaded, listing.population(shape), queues=["none"])
    assert population.scanned == []
    assert population.buffers <= 10


@pytest.mark.parametrize("status", [READY_STATUS, RUNNING_STATUS, DEAD_STATUS, CANCELLED_STATUS])
def test_the_population_of_a_status_is_bounded(loaded: Table, status: JobStatus) -> None:
    """Whether a status has few jobs is known after a bounded part of its index."""
    plan = explain(loaded, listing.population(Shape(statuses=(status,))))
    assert plan.scanned == []
    assert not plan.indexes & {PRIMARY}
    assert plan.buffers <= 1.2 * listing.FEW


def test_the_population_of_what_most_jobs_are(analysed: Table) -> None:
    """Of a status that most rows have so many are counted, by whatever way the planner likes."""
    plan = explain(analysed, listing.population(Shape(statuses=(DONE_STATUS,))))
    assert max(node["Actual Rows"] for node in plan.nodes) == listing.FEW + 1
    assert plan.buffers <= 1.2 * listing.FEW


def test_one_job(loaded: Table) -> None:
    """A job is read by its id."""
    plan = loaded.explain(detail.detail(), {"id": loaded.dead[0]})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.buffers < 10


def test_ready_and_running_jobs_are_counted_by_their_indexes(loaded: Table) -> None:
    """Exact numbers of what is alive: the history is not read."""
    ready, running = loaded.explain(stats.ready(), {}), loaded.explain(stats.running(), {})
    assert ready.scanned == running.scanned == []
    assert (ready.indexes, running.indexes) == ({READY_INDEX}, {RUNNING_INDEX})
    assert running.buffers <= 2 * RUNNING


def test_the_history_is_counted_up_to_a_bound(loaded: Table) -> None:
    """Of each finished status so many rows are counted, however many there are."""
    most = 1000
    plan = loaded.explain(stats.finished(), {"most": most})
    limits = [node["Actual Rows"] for node in plan.nodes if node["Node Type"] == "Limit"]
    assert sorted(limits) == [0, most, most]
    assert DEAD > most > READY
    assert max(node["Actual Rows"] for node in plan.nodes) <= most
