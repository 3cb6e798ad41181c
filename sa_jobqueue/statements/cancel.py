"""Cancel: a person stops a job that waits, and asks for the end of one that runs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import case, func, update

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import moment, status, word
from sa_jobqueue.statements.parts import key_released, named, outcomes
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb

if TYPE_CHECKING:
    from sqlalchemy import Select


@cache
def cancel() -> Select[tuple[int, str, str | None]]:
    """Ready to cancelled; a running job gets the request, which its runner reads with the next renewal.

    Parameter: `ids`. A request that stands already keeps its time. The lease and its token stay, so that a completion may
    still land and wins; every other verb by which the runner lets the job go then leads to cancelled.
    """
    schema_in_use()
    rows = named()
    waits = jobs.c.status == status(JobStatus.READY)
    changes = (
        update(jobs)
        .where(rows.c.status.in_([status(source) for source in TRANSITIONS[Verb.CANCEL].sources]))
        .values(
            status=case((waits, status(JobStatus.CANCELLED)), else_=jobs.c.status),
            reason=case((waits, word("cancelled")), else_=jobs.c.reason),
            finished_at=case((waits, moment()), else_=jobs.c.finished_at),
            unique_key=case((waits, key_released()), else_=jobs.c.unique_key),
            cancel_requested_at=case(
                (waits, jobs.c.cancel_requested_at),
                else_=func.coalesce(jobs.c.cancel_requested_at, moment()),
            ),
            updated_at=moment(),
        )
    )
    return outcomes(rows, changes)
