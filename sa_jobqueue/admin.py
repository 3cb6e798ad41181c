"""Verbs for people: what an operator does to jobs, inside the caller's transaction.

Unlike a runner's verbs they prove nothing but the id. The caller commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from sa_jobqueue.models import Job
from sa_jobqueue.store import operator
from sa_jobqueue.store.sessions import job_connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_jobqueue.records import Redriven


def redrive(target: Session | scoped_session[Session] | Connection, ids: Iterable[int]) -> list[Redriven]:
    """Send dead or cancelled jobs back to ready with a new budget of attempts; the caller's commit makes it real.

    A request for cancellation, the reason and a past `expires_at` are cleared; errors and the count of attempts stay.
    A job of key scope `unfinished` takes its key again: when another job holds it by now, the job stays and its reason
    is "key held by job N". Answers once per id, in the order given; a job that did not go says why. Job objects in a
    Session are expired, so that their next read shows the change. From async code: `await session.run_sync(redrive, ids)`.
    Raises TypeError for any other target.
    """
    if isinstance(target, Connection):
        return operator.redrive(target, ids)
    session = target() if isinstance(target, scoped_session) else target
    if not isinstance(session, Session):
        raise TypeError(
            f"redrive(): expected a Session or Connection first, got {type(target).__qualname__}; "
            "from async code: await session.run_sync(redrive, ids)"
        )
    redriven = operator.redrive(job_connection(session), ids)
    touched = {answer.id for answer in redriven}
    for job in [job for job in session.identity_map.values() if isinstance(job, Job)]:
        if job.__dict__.get("id") in touched:
            session.expire(job)
    return redriven
