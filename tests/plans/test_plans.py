"""No statement of the hot path reads the whole table, whatever the planner knows about it."""

from __future__ import annotations

import statistics
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

from sa_jobqueue.queries import ending, expired, held, unknown, unserved
from sa_jobqueue.statements import (
    cancel,
    claim,
    fence,
    postpone,
    redrive,
    renew,
    report,
    reschedule,
    rescue,
    settle,
)
from sa_jobqueue.states import Verb
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.plans.conftest import QUEUES, TOKEN, Table
from tests.support.databases import fresh_database
from tests.support.explain import Plan, explain

PRIMARY, READY_INDEX, RUNNING_INDEX = (
    "jobqueue_jobs_pkey",
    "jobqueue_jobs_ready_idx",
    "jobqueue_jobs_running_idx",
)
MINUTE = timedelta(minutes=1)
ALL_QUEUES = {f"q{number}": 10 for number in range(QUEUES)}


def explain_claim(table: Table, quotas: dict[str, int], kinds: tuple[str, ...] = ("test",)) -> Plan:
    return table.explain(
        claim.claim(),
        {
            "queues": list(quotas),
            "quotas": list(quotas.values()),
            "kinds": list(kinds),
            "token": uuid.uuid4(),
            "lease": MINUTE,
            "runner": "planner",
        },
    )


def batch(ids: list[int], **fields: Any) -> dict[str, Any]:
    arrays = {name: [value] * len(ids) for name, value in fields.items()}
    return {"ids": ids, "tokens": [TOKEN] * len(ids), **arrays}


def test_claim_uses_the_ready_index(loaded: Table, small: Table) -> None:
    """A claim costs what it takes, not what lies in the table: finished, future and running jobs are never read."""
    plan, baseline = explain_claim(loaded, ALL_QUEUES), explain_claim(small, ALL_QUEUES)
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY, READY_INDEX}
    assert plan.root["Actual Rows"] == sum(ALL_QUEUES.values())
    assert plan.buffers <= 10 * baseline.buffers


def test_claim_looks_at_the_priorities_in_order(loaded: Table) -> None:
    """The series of priorities is scanned upwards and outermost, which is the only thing that orders a claim."""
    plan = explain_claim(loaded, {"q0": 3})
    (series,) = [node for node in plan.nodes if node.get("Function Name") == "generate_series"]
    assert series["Node Type"] == "Function Scan"
    assert series["Parent Relationship"] == "Outer"
    assert not [
        node for node in plan.nodes if node["Node Type"] in ("Hash Join", "Merge Join", "Materialize")
    ]


def test_claim_of_a_scheduled_queue_is_as_cheap_as_of_an_empty_one(loaded: Table) -> None:
    """Jobs for tomorrow cost a claim nothing, however many there are."""
    scheduled, empty = explain_claim(loaded, {"scheduled": 10}), explain_claim(loaded, {"no such queue": 10})
    assert scheduled.root["Actual Rows"] == 0
    assert scheduled.buffers <= empty.buffers + 10


def test_claiming_by_id_goes_by_the_primary_key(loaded: Table) -> None:
    """Around a row that nobody can claim the others are taken one by one: what lies in the table costs nothing."""
    given = {"queues": list(ALL_QUEUES), "quotas": list(ALL_QUEUES.values()), "kinds": ["test"]}
    plan = loaded.explain(claim.candidates(), given)
    assert plan.scanned == []
    assert plan.indexes == {READY_INDEX}
    assert plan.root["Actual Rows"] == sum(ALL_QUEUES.values())
    terms = {"token": uuid.uuid4(), "lease": MINUTE, "runner": "planner"}
    plan = loaded.explain(claim.claim_listed(), {"ids": loaded.ready, **terms})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 100


@pytest.mark.parametrize("verb", list(settle.SETTLING))
def test_settling_goes_by_the_primary_key(loaded: Table, small: Table, verb: Verb) -> None:
    """A batch of outcomes finds its rows by id; the small index of running jobs would be read once for each."""
    statement, _ = settle.SETTLING[verb]
    fields = {
        "result_texts": "{}",
        "delays": MINUTE,
        "error_texts": "failed",
        "reason_texts": "no use",
    }
    plan = loaded.explain(statement(), batch(loaded.running, **fields))
    baseline = small.explain(statement(), batch(small.running, **fields))
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 100
    assert plan.buffers <= 10 * baseline.buffers


def test_the_fence_goes_by_the_primary_key(loaded: Table) -> None:
    """It stands in somebody's transaction: one row, looked up twice."""
    given = {"job_id": loaded.running[0], "token": TOKEN, "result_text": "{}", "lease": MINUTE}
    plan = loaded.explain(fence.fence(), given)
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 1
    assert plan.buffers < 100


@pytest.mark.parametrize("generic", [True, False])
def test_settling_is_not_misled_by_old_statistics(
    server: PostgresServer, template_database: str, *, generic: bool
) -> None:
    """A thousand outcomes right after an ANALYZE that saw no lease: still one look-up each, not the table for each."""
    with fresh_database(server, template=template_database) as url:
        with connect(url) as connection:
            connection.execute("ALTER TABLE jobqueue_jobs SET (autovacuum_enabled = false)")
            connection.execute("INSERT INTO jobqueue_jobs (kind) SELECT 'test' FROM generate_series(1, 5000)")
            connection.execute("VACUUM ANALYZE jobqueue_jobs")
            connection.execute(
                "UPDATE jobqueue_jobs SET status = 'running', attempts = 1, lease_token = %s,"
                " lease_until = now() + interval '1 hour' WHERE id <= 1000",
                [TOKEN],
            )
        ids = list(range(1, 1001))
        plan = explain(url, settle.complete(), batch(ids, result_texts=None), generic=generic)
    assert plan.scanned == []
    assert plan.root["Actual Rows"] == 1000
    assert not [node for node in plan.nodes if node.get("Rows Removed by Join Filter")]


def test_renewal_goes_by_the_primary_key(loaded: Table) -> None:
    """All held leases are renewed in one statement that finds its rows by id."""
    plan = loaded.explain(renew.renew(), {**batch(loaded.running), "lease": MINUTE})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 100


def test_progress_goes_by_the_primary_key(loaded: Table) -> None:
    """So does what handlers report, once a second."""
    given = {"fractions": [0.5] * len(loaded.running), "progress_texts": ["page 1"] * len(loaded.running)}
    plan = loaded.explain(report.report(), {**batch(loaded.running), **given})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 100


def test_who_waits_for_a_job_reads_its_row_alone(loaded: Table) -> None:
    """One look among as many as there are waiters: the primary key, and no large value of an unfinished job."""
    plan = loaded.explain(ending.ending(), {"id": loaded.running[0]})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.buffers < 20


def test_owners_are_read_by_the_primary_key(loaded: Table) -> None:
    """The read after a miss costs a few buffers for each id."""
    plan = loaded.explain(held.owners(), {"ids": loaded.running})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.buffers < 1000


def test_a_sweep_with_nothing_to_do_is_cheap(loaded: Table) -> None:
    """Every runner looks for expired leases all the time: with none it reads a corner of the running index."""
    parameters = {"lease": timedelta(0), "margin": timedelta(0), "amount": 100, "passed": 0}
    plan = loaded.explain(expired.expired(), parameters)
    assert plan.scanned == []
    assert plan.indexes == {RUNNING_INDEX}
    assert plan.root["Actual Rows"] == 0
    assert plan.buffers < 100


def test_rescue_goes_by_the_primary_key(loaded: Table) -> None:
    """Jobs are taken back by id and token."""
    # A margin below zero makes leases of tomorrow look past, so that the statement has something to do.
    plan = loaded.explain(
        rescue.rescue(), {**batch(loaded.running, delays=MINUTE), "margin": timedelta(days=-2)}
    )
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 100


def test_a_lost_claim_is_found_among_the_running(loaded: Table) -> None:
    """Without ids the running jobs are read, and nothing else."""
    for statement, given in (
        (settle.release_claim(), {}),
        (settle.release_listed(), {"ids": loaded.running}),
        (held.of_token(), {}),
    ):
        plan = loaded.explain(statement, {"token": uuid.uuid4(), **given})
        assert plan.scanned == []
        assert plan.indexes <= {PRIMARY, RUNNING_INDEX}
    plan = loaded.explain(settle.release_listed(), {"token": TOKEN, "ids": loaded.running})
    assert plan.scanned == []
    assert plan.root["Actual Rows"] == 100


@pytest.mark.parametrize(
    ("statement", "rows", "given"),
    [
        (cancel.cancel, "ready", {}),
        (cancel.cancel, "running", {}),
        (redrive.redrive, "dead", {}),
        (redrive.redrive_keyed, "keyed", {}),
        (reschedule.reschedule, "ready", {"run_at": None, "delay": MINUTE, "priority": 0}),
    ],
)
def test_a_persons_verb_goes_by_the_primary_key(
    loaded: Table, statement: Any, rows: str, given: dict[str, Any]
) -> None:
    """A person's verb may take a while, but not the time to read the history."""
    ids = getattr(loaded, rows)
    plan = loaded.explain(statement(), {"ids": ids, **given})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    (change,) = [node for node in plan.nodes if node["Node Type"] == "ModifyTable"]
    assert change["Actual Rows"] == len(ids) == 100
    assert plan.buffers < 100 * 100


def test_the_holder_of_a_key_is_found_by_the_key(loaded: Table) -> None:
    """Which job holds the key is asked for once per job that stays."""
    plan = loaded.explain(redrive.key_is_held(), {"held_back": loaded.keyed[0]})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY, "jobqueue_jobs_unique_key_idx"}


def test_claims_stay_fast_on_a_loaded_table(analysed: Table, small: Table) -> None:
    """Two hundred claims on either table: history may cost a claim three times its time, no more."""
    times: dict[str, list[float]] = {analysed.url: [], small.url: []}
    engines = {url: create_engine(url) for url in times}
    stores = {url: Store(engine, name="timer") for url, engine in engines.items()}
    for _ in range(200):
        for url, store in stores.items():
            began = time.perf_counter()
            # Nothing is due for this kind: the table stays as it is, and every ready job is looked at.
            store.claim(token=uuid.uuid4(), quotas=ALL_QUEUES, kinds=["other"], lease=MINUTE)
            times[url].append(time.perf_counter() - began)
    for url, store in stores.items():
        store.close()
        engines[url].dispose()
    assert statistics.median(times[analysed.url]) <= 3 * statistics.median(times[small.url])


def test_unknown_kinds_are_looked_for_at_the_heads_of_queues(loaded: Table) -> None:
    """The look that tells of kinds without a handler reads a bounded number of due jobs, in index order."""
    parameters = {"queues": list(ALL_QUEUES), "kinds": ["another"], "amount": 20}
    plan = loaded.explain(unknown.unknown_kinds(), parameters)
    assert plan.scanned == []
    assert plan.indexes == {READY_INDEX}
    # For each queue ten priorities, each one way down the index, and three pages for each of 20 jobs.
    assert plan.buffers <= len(ALL_QUEUES) * (10 * 4 + 20 * 3)


def test_future_jobs_cost_the_look_for_unknown_kinds_nothing(loaded: Table) -> None:
    """A queue of nothing but jobs for tomorrow has an empty head, however many there are."""
    plan = loaded.explain(
        unknown.unknown_kinds(), {"queues": ["scheduled"], "kinds": ["another"], "amount": 1000}
    )
    assert plan.root["Actual Rows"] == 0
    assert plan.buffers <= 100


def test_unserved_queues_are_found_by_their_names(loaded: Table) -> None:
    """The look from name to name reads an index, and of each queue a bounded number of due jobs."""
    plan = loaded.explain(unserved.unserved(), {"queues": ["q0"], "kinds": ["test"], "amount": 5})
    assert plan.scanned == []
    assert plan.indexes == {READY_INDEX}
    assert plan.root["Actual Rows"] == QUEUES - 1
    # Six queues, the next name of each, ten priorities: a descent of the index each, and the due jobs' rows.
    assert plan.buffers <= 6 * (11 * 4 + 3 * 5)


def test_jobs_to_postpone_are_found_by_the_ready_index(loaded: Table) -> None:
    """What stands behind the first ones is read in claim order, and who works on what in the small running index."""
    given = {"queue": "q0", "kinds": ["test", "another"], "passed": 4, "amount": 10}
    busy = loaded.explain(unknown.waiting(), given)
    assert busy.scanned == []
    assert busy.indexes == {READY_INDEX, RUNNING_INDEX}
    # Five thousand run, of this very kind: a look at all of them, once.
    assert busy.root["Actual Rows"] == 0
    assert [node["Actual Loops"] for node in busy.nodes if node.get("Index Name") == RUNNING_INDEX] == [1]


def test_a_scheduled_queue_has_nothing_to_postpone(loaded: Table) -> None:
    """Jobs for tomorrow are not read: of the table no more than the running jobs."""
    given = {"kinds": ["test"], "passed": 1000, "amount": 1000}
    scheduled = loaded.explain(unknown.waiting(), {"queue": "scheduled", **given})
    empty = loaded.explain(unknown.waiting(), {"queue": "no such queue", **given})
    assert scheduled.root["Actual Rows"] == 0
    assert scheduled.buffers <= empty.buffers + 10


def test_postponing_goes_by_the_primary_key(loaded: Table, small: Table) -> None:
    """A batch finds its rows by id, whatever lies in the table."""
    bounds = {"shortest": MINUTE, "longest": 60 * MINUTE}
    plan = loaded.explain(postpone.postpone(), {"ids": loaded.ready, **bounds})
    baseline = small.explain(postpone.postpone(), {"ids": small.ready, **bounds})
    assert plan.scanned == []
    assert plan.indexes == {PRIMARY}
    assert plan.root["Actual Rows"] == 100
    assert plan.buffers <= 10 * baseline.buffers
