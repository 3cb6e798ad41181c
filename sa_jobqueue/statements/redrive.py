"""Redrive: a person sends dead or cancelled jobs back to ready, with a new budget of attempts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, and_, bindparam, case, cast, func, not_, null, update

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.sql import moment, status, word
from sa_jobqueue.statements.parts import lease_ended, named, outcomes
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, FromClause, Select, Update

_SOURCES = [status(source) for source in TRANSITIONS[Verb.REDRIVE].sources]


@cache
def redrive() -> Select[tuple[int, str, str | None, str]]:
    """Dead or cancelled to ready, but for jobs that must take their key again. Parameter: `ids`; tells their keys too.

    Due no earlier than now: old jobs queue up behind the ones that are waiting, and a later time of its own is kept.
    """
    schema_in_use()
    return _redrive(not_)


@cache
def redrive_keyed() -> Select[tuple[int, str, str | None, str]]:
    """The same with jobs that take their key again: a unique violation when another job holds it by now."""
    schema_in_use()
    return _redrive()


def _redrive(*guards: Callable[[ColumnElement[bool]], ColumnElement[bool]]) -> Select[Any]:
    rows = named(_takes_key, lambda job: job.c.idempotency_key)
    past = jobs.c.expires_at <= moment()
    changes = (
        update(jobs)
        .where(rows.c.status.in_(_SOURCES), *(guard(rows.c.takes_key) for guard in guards))
        .values(
            # A job that was running when this statement began may be dead by now: see the traps in `statements`.
            **lease_ended(),
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
        )
    )
    return outcomes(rows, changes, rows.c.idempotency_key)


def _takes_key(job: FromClause) -> ColumnElement[Any]:
    scope = func.coalesce(job.c.key_scope, word(""))
    return and_(scope == word("unfinished"), job.c.unique_key.is_(None)).label("takes_key")


@cache
def key_is_held() -> Update:
    """Writes down on the job `held_back` which job holds its key; no row when nobody does any more."""
    schema_in_use()
    holder = jobs.alias("holder")
    return (
        update(jobs)
        .where(
            jobs.c.id == cast(bindparam("held_back", type_=BigInteger), BigInteger),
            jobs.c.status.in_(_SOURCES),
            holder.c.unique_key == jobs.c.idempotency_key,
        )
        .values(reason=word("key held by job ") + cast(holder.c.id, Text), updated_at=moment())
        .returning(jobs.c.status, jobs.c.reason)
    )
