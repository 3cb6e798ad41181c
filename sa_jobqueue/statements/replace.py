"""Replace and reschedule by key: what waits under a key becomes what is asked for now, or only gets its due time.

An INSERT ... ON CONFLICT DO UPDATE can't do it: it knows one behaviour for all rows, and would touch jobs that run or have
ended. So this comes after the INSERT, for the keys that it found taken. A row that somebody has locked is waited for; one
that runs or has ended by then is left alone. It is one statement for both, for two would lock rows in two orders.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, case, column, func, null, select, true, update

from sa_jobqueue.models import SMALL_COLUMNS, jobs, schema_in_use
from sa_jobqueue.sql import array, moment
from sa_jobqueue.statements.insert import COLUMNS, asked_for, given_arrays, insert_parameters
from sa_jobqueue.statements.parts import unmeasured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import CTE
    from sqlalchemy.sql.dml import ReturningUpdate

    from sa_jobqueue.records import NewJob

#: In an UPDATE, SQLAlchemy keeps the names of columns for itself.
_PREFIX = "given_"
_REPLACES = "replaces"


@cache
def change_waiting() -> ReturningUpdate[Any]:
    """Give the waiting holders of these keys their new due time, and to replace them everything else that is asked for.

    That is all that `enqueue()` decides but the key, with a new budget of attempts; kind and queue change as well, as the
    payload goes with them. Answers with the rows that were changed, in any order. Parameters: `change_parameters()`.
    """
    schema_in_use()
    waiting = _waiting()
    row = waiting.c
    replaced = {**asked_for(row), jobs.c.returned: jobs.c.attempts, jobs.c.reason: null()}
    due = replaced.pop(jobs.c.run_at)
    return (
        update(jobs)
        .where(jobs.c.id == row.id)
        .values(
            {
                **{kept: case((row.replaces, new), else_=kept) for kept, new in replaced.items()},
                jobs.c.run_at: due,
                jobs.c.updated_at: moment(),
            }
        )
        .returning(*SMALL_COLUMNS)
    )


def change_parameters(new_jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The arrays for `change_waiting()`."""
    parameters = {_PREFIX + name: column for name, column in insert_parameters(new_jobs).items()}
    parameters[_PREFIX + _REPLACES] = [new_job.on_conflict == "replace" for new_job in new_jobs]
    return parameters


def _waiting() -> CTE:
    """The ready rows that hold the keys, locked in key order, beside what is asked for."""
    columns = [*((name, item) for name, item, _ in COLUMNS), (_REPLACES, Boolean)]
    arrays = [*given_arrays(_PREFIX), array(_PREFIX + _REPLACES, Boolean)]
    given = (
        func.unnest(*map(unmeasured, arrays))
        .table_valued(*(column(name, item) for name, item in columns))
        .render_derived(name="given")
    )
    # The order of Python's strings, in which the keys come to the INSERT, whatever collation the database has.
    batch = select(given).order_by(given.c.unique_key.collate("C")).subquery("batch")
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
