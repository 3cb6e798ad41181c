"""The plan of the insert on a loaded table: one probe of the key's index for each job, never a scan."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.records import NewJob
from sa_jobqueue.statements.insert import insert_jobs, insert_parameters

LOADED = 50_000
#: Where NOT EXISTS in the place of the scalar sub-select makes the planner hash the whole table.
BATCH = 5_000


@pytest.mark.parametrize("plan_cache_mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analysed", [True, False])
def test_the_insert_probes_the_index_of_keys(analysed: bool, plan_cache_mode: str, engine: Engine) -> None:
    """Whatever the planner knows of the table and the batch, the cost must not grow with the table."""
    with engine.connect() as connection:
        connection.execute(
            text(
                "INSERT INTO jobqueue_jobs (kind, idempotency_key, key_scope, unique_key, status, finished_at) "
                "SELECT 'k', 'old ' || n, 'row', 'old ' || n, 'done', now() FROM generate_series(1, :loaded) n"
            ),
            {"loaded": LOADED},
        )
        if analysed:
            connection.exec_driver_sql("ANALYZE jobqueue_jobs")
        connection.exec_driver_sql(f"SET LOCAL plan_cache_mode = {plan_cache_mode}")
        new = [NewJob(kind="k", payload="1", idempotency_key=f"{n}", key_scope="row") for n in range(BATCH)]
        statement = str(insert_jobs().compile(engine))
        plan = "\n".join(
            connection.exec_driver_sql(f"EXPLAIN {statement}", insert_parameters(new)).scalars().all()
        )
    assert "Seq Scan on jobqueue_jobs" not in plan, plan
    assert "hashed" not in plan, plan
    assert "Index Only Scan using jobqueue_jobs_unique_key_idx" in plan, plan
