"""A prune costs what it deletes: neither what is kept for ever nor what is not old enough is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sa_jobqueue.queries import prunable
from sa_jobqueue.statements.prune import prune, prune_listed
from sa_jobqueue.states import JobStatus
from tests.plans.conftest import DEAD, Plan, Table

PRIMARY, FINISHED_INDEX = "jobqueue_jobs_pkey", "jobqueue_jobs_finished_idx"
DAY = timedelta(days=1)
BATCH = 500
#: A row of the batch: its index entry and page, the lock, the way back by its id, the delete.
PER_ROW = 12


def explain_prune(table: Table, status: JobStatus, *, age: timedelta, amount: int = BATCH) -> Plan:
    parameters = {"age": age, "since": None, "amount": amount, "patience": "500ms"}
    return table.explain(prune(status), parameters)


def test_a_batch_goes_by_the_index_of_the_finished(loaded: Table) -> None:
    """Among 300,000 done jobs, and 20,000 dead ones that finished before all of them, a batch reads its own rows."""
    plan = explain_prune(loaded, JobStatus.DONE, age=3 * DAY)
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY, FINISHED_INDEX}
    assert plan.root["Actual Rows"] == BATCH
    assert plan.buffers <= PER_ROW * BATCH


def test_no_more_rows_are_locked_than_deleted(loaded: Table) -> None:
    """The limit that the planner sees is a ceiling: the rows are locked one by one, as many as are asked for."""
    plan = explain_prune(loaded, JobStatus.DONE, age=3 * DAY, amount=7)
    (locking,) = [node for node in plan.nodes if node["Node Type"] == "LockRows"]
    assert locking["Actual Rows"] == plan.root["Actual Rows"] == 7


def test_a_prune_with_nothing_to_do_is_cheap(loaded: Table) -> None:
    """Every runner looks each minute: what is kept costs that look nothing, of its own status or another."""
    for status, age in (
        (JobStatus.DONE, 6 * DAY),
        (JobStatus.DEAD, 400 * DAY),
        (JobStatus.CANCELLED, timedelta(0)),
    ):
        plan = explain_prune(loaded, status, age=age)
        assert plan.scanned == []
        assert plan.root["Actual Rows"] == 0
        assert plan.buffers <= 20


def test_pruning_by_id_goes_by_the_primary_key(loaded: Table) -> None:
    """Around a row that must stay the others are deleted by id, whatever else has their status."""
    parameters: dict[str, Any] = {"ids": loaded.dead, "age": DAY, "patience": "500ms"}
    plan = loaded.explain(prune_listed(JobStatus.DEAD), parameters)
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == len(loaded.dead)


def test_a_page_behind_a_refused_job_goes_by_the_index(loaded: Table) -> None:
    """The way on begins where the last page ended, however many jobs that must stay lie before it."""
    newest = loaded.explain(
        prunable.page(JobStatus.DEAD), {"age": DAY, "since": None, "behind": 0, "amount": BATCH}
    )
    assert newest.scanned == []
    assert newest.indexes == {FINISHED_INDEX}
    assert newest.root["Actual Rows"] == BATCH
    assert newest.buffers <= 2 * BATCH


def test_the_count_reads_its_part_of_the_index(loaded: Table) -> None:
    """A dry run counts the old ones of one status, and nothing of the others."""
    plan = loaded.explain(prunable.count(JobStatus.DEAD), {"age": timedelta(days=1)})
    assert plan.scanned == []
    assert plan.indexes == {FINISHED_INDEX}
    assert plan.root["Actual Rows"] == 1
    assert plan.buffers <= 2 * DEAD
