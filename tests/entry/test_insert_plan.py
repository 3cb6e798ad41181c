"""Plans on a loaded table, of the insert and of changes by key: one probe of the key's index for each job, never a scan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Executable, text

from sa_jobqueue.records import NewJob
from sa_jobqueue.statements.insert import (
    insert_job,
    insert_jobs,
    insert_parameter,
    insert_parameters,
)
from sa_jobqueue.statements.replace import change_parameters, change_waiting

LOADED = 50_000
#: Where NOT EXISTS in the place of the scalar sub-select makes the planner hash the whole table.
BATCH = 5_000


@contextmanager
def loaded(engine: Engine, *, analysed: bool, plan_cache_mode: str) -> Iterator[Connection]:
    """A connection to a table with many keys, half of them of jobs that wait."""
    with engine.connect() as connection:
        connection.execute(
            text(
                "INSERT INTO jobqueue_jobs (kind, idempotency_key, key_scope, unique_key, status, finished_at) "
                "SELECT 'k', 'old ' || n, 'row', 'old ' || n, CASE n % 2 WHEN 0 THEN 'done' ELSE 'ready' END, "
                "CASE n % 2 WHEN 0 THEN now() END FROM generate_series(1, :loaded) n"
            ),
            {"loaded": LOADED},
        )
        if analysed:
            connection.exec_driver_sql("ANALYZE jobqueue_jobs")
        connection.exec_driver_sql(f"SET LOCAL plan_cache_mode = {plan_cache_mode}")
        yield connection


def explain(connection: Connection, statement: Executable, parameters: dict[str, Any]) -> str:
    explained = f"EXPLAIN {statement.compile(connection.engine)}"
    return "\n".join(connection.exec_driver_sql(explained, parameters).scalars())


def batch(prefix: str = "") -> list[NewJob]:
    return [
        NewJob(kind="k", payload="1", idempotency_key=f"{prefix}{n}", key_scope="row") for n in range(BATCH)
    ]


@pytest.mark.parametrize("plan_cache_mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analysed", [True, False])
def test_the_insert_probes_the_index_of_keys(analysed: bool, plan_cache_mode: str, engine: Engine) -> None:
    """Whatever the planner knows of the table and the batch, the cost must not grow with the table."""
    with loaded(engine, analysed=analysed, plan_cache_mode=plan_cache_mode) as connection:
        plans = [
            explain(connection, insert_jobs(), insert_parameters(batch())),
            explain(connection, insert_job(keyed=True), insert_parameter(batch()[0])),
        ]
    for plan in plans:
        assert "Seq Scan on jobqueue_jobs" not in plan, plan
        assert "hashed" not in plan, plan
        assert "Index Only Scan using jobqueue_jobs_unique_key_idx" in plan, plan


@pytest.mark.parametrize("plan_cache_mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analysed", [True, False])
def test_changes_by_key_probe_the_index_of_keys(analysed: bool, plan_cache_mode: str, engine: Engine) -> None:
    """And write each row by its primary key."""
    with loaded(engine, analysed=analysed, plan_cache_mode=plan_cache_mode) as connection:
        plan = explain(connection, change_waiting(), change_parameters(batch("old ")))
    assert "Seq Scan on jobqueue_jobs" not in plan, plan
    assert "Index Scan using jobqueue_jobs_unique_key_idx" in plan, plan
    assert "Index Scan using jobqueue_jobs_pkey" in plan, plan
