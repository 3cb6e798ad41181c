"""Replace and reschedule by key: what waits under a key becomes what is asked for now, or only gets its due time.

An INSERT ... ON CONFLICT DO UPDATE can't do it: it knows one behaviour for all rows, and would touch jobs that run or have
ended. So these come after the INSERT, for the keys that it found taken. A row that somebody has locked is waited for, in
the order of the keys; one that runs or has ended by then is left alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import column, func, null, select, true, update

from sa_jobqueue.models import SMALL_COLUMNS, jobs, schema_in_use
from sa_jobqueue.sql import array, moment
from sa_jobqueue.statements.insert import COLUMNS, asked_for, due, insert_parameters
from sa_jobqueue.statements.parts import unmeasured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import CTE
    from sqlalchemy.sql.dml import ReturningUpdate

    from sa_jobqueue.records import NewJob

#: In an UPDATE, SQLAlchemy keeps the names of columns for itself.
_PREFIX = "given_"


@cache
def replace_waiting() -> ReturningUpdate[Any]:
    """Everything that `enqueue()` decides but the key, and a new budget of attempts. Parameters: `change_parameters()`.

    Answers with the rows that were changed, in any order. Its kind and queue change as well: the payload goes with them.
    """
    return _change(_everything)


@cache
def reschedule_waiting() -> ReturningUpdate[Any]:
    """The due time alone. Parameters and answer as of `replace_waiting()`."""
    return _change(lambda row: {jobs.c.run_at: due(row)})


def change_parameters(new_jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """The arrays for `replace_waiting()` and `reschedule_waiting()`."""
    return {_PREFIX + name: column for name, column in insert_parameters(new_jobs).items()}


def _everything(row: Any) -> dict[Any, Any]:
    return {**asked_for(row), jobs.c.returned: jobs.c.attempts, jobs.c.reason: null()}


def _change(values: Any) -> ReturningUpdate[Any]:
    schema_in_use()
    waiting = _waiting()
    return (
        update(jobs)
        .where(jobs.c.id == waiting.c.id)
        .values({**values(waiting.c), jobs.c.updated_at: moment()})
        .returning(*SMALL_COLUMNS)
    )


def _waiting() -> CTE:
    """The ready rows that hold the keys, locked in key order, beside what is asked for."""
    given = (
        func.unnest(*(unmeasured(array(_PREFIX + name, item)) for name, item, _ in COLUMNS))
        .table_valued(*(column(name, item) for name, item, _ in COLUMNS))
        .render_derived(name="given")
    )
    batch = select(given).order_by(given.c.unique_key).subquery("batch")
    job = jobs.alias("job")
    holder = (
        select(job.c.id)
        # Ready is said without its name, as that would bring another index in; see the traps in `statements`.
        .where(
            job.c.unique_key == batch.c.unique_key, job.c.lease_token.is_(None), job.c.finished_at.is_(None)
        )
        .with_for_update(key_share=True)
        .correlate(batch)
        .lateral("holder")
    )
    return (
        select(holder.c.id, *batch.c)
        .select_from(batch.join(holder, true()))
        .cte("waiting")
        .prefix_with("MATERIALIZED")
    )
