"""Redrive: a person sends dead or cancelled jobs back to ready, with a new budget of attempts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Text, any_, bindparam, case, cast, false, func, null, select, update

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import array, moment, status, word
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb

if TYPE_CHECKING:
    from sqlalchemy import Executable, Update


@cache
def candidates() -> Executable:
    """Locks the rows of `ids` in id order and tells their status and whether they have a key to take again."""
    schema_in_use()
    gone = (jobs.c.key_scope == word("unfinished")) & jobs.c.unique_key.is_(None)
    return (
        select(jobs.c.id, jobs.c.status, func.coalesce(gone, false()).label("needs_key"))
        .where(jobs.c.id == any_(array("ids", BigInteger)))
        .order_by(jobs.c.id)
        .with_for_update(key_share=True)
    )


@cache
def redrive() -> Update:
    """Dead or cancelled to ready, for `ids`. A key that somebody holds by now raises a unique violation.

    Due no earlier than now: old jobs queue up behind the ones that are waiting, and a later time of its own is kept.
    """
    schema_in_use()
    past = jobs.c.expires_at <= moment()
    return (
        update(jobs)
        .where(
            jobs.c.id == any_(array("ids", BigInteger)),
            jobs.c.status.in_([status(source) for source in TRANSITIONS[Verb.REDRIVE].sources]),
        )
        .values(
            status=status(JobStatus.READY),
            returned=jobs.c.attempts,
            run_at=func.greatest(jobs.c.run_at, moment()),
            expires_at=case((past, null()), else_=jobs.c.expires_at),
            cancel_requested_at=null(),
            reason=null(),
            finished_at=null(),
            unique_key=case(
                (jobs.c.key_scope == word("unfinished"), jobs.c.idempotency_key), else_=jobs.c.unique_key
            ),
            updated_at=moment(),
        )
        .returning(jobs.c.id)
    )


@cache
def key_is_held() -> Update:
    """Writes down on the job `id` which job holds its key; no row when nobody does any more."""
    schema_in_use()
    holder = jobs.alias("holder")
    return (
        update(jobs)
        .where(
            jobs.c.id == cast(bindparam("held_back", type_=BigInteger), BigInteger),
            holder.c.unique_key == jobs.c.idempotency_key,
        )
        .values(reason=word("key held by job ") + cast(holder.c.id, Text), updated_at=moment())
        .returning(jobs.c.reason)
    )
