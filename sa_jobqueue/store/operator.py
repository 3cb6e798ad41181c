"""What a person does to jobs, on a connection of the caller's: never a commit, never a rollback of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import IntegrityError

from sa_jobqueue.records import Redriven
from sa_jobqueue.statements.redrive import candidates, key_is_held
from sa_jobqueue.statements.redrive import redrive as redrive_statement
from sa_jobqueue.states import TRANSITIONS, Verb
from sa_jobqueue.store.callers_connection import in_autocommit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

#: A key can change hands between our attempt and the read of its holder; then the attempt is worth repeating.
_ATTEMPTS = 5


def redrive(connection: Connection, ids: Iterable[int]) -> list[Redriven]:
    """Send dead or cancelled jobs back to ready, answers in the order of `ids`, each id once.

    Waits for rows that another transaction has locked. A job whose key another job holds by now stays where it is, and
    its `reason` names that job; the others go.
    """
    wanted = list(dict.fromkeys(ids))
    rows = {row.id: row for row in connection.execute(candidates(), {"ids": wanted})}
    sources = TRANSITIONS[Verb.REDRIVE].sources
    plain = [job_id for job_id, row in rows.items() if row.status in sources and not row.needs_key]
    landed = set(connection.execute(redrive_statement(), {"ids": plain}).scalars()) if plain else set()
    answers: dict[int, Redriven] = {}
    for job_id in wanted:
        row = rows.get(job_id)
        if row is None:
            answers[job_id] = Redriven(job_id, landed=False, reason="no such job")
        elif row.status not in sources:
            answers[job_id] = Redriven(
                job_id, landed=False, reason=f"the job is {row.status}, neither dead nor cancelled"
            )
        elif row.needs_key:
            answers[job_id] = _with_key(connection, job_id)
        else:
            answers[job_id] = _answer(job_id, landed=job_id in landed)
    return list(answers.values())


def _answer(job_id: int, *, landed: bool) -> Redriven:
    # On an AUTOCOMMIT connection nothing holds the row between the look and the write.
    return Redriven(
        job_id, landed=landed, reason=None if landed else "somebody else changed the job meanwhile"
    )


def _with_key(connection: Connection, job_id: int) -> Redriven:
    for _ in range(_ATTEMPTS):
        try:
            return _answer(job_id, landed=_redrive_alone(connection, job_id))
        except IntegrityError:
            held = connection.execute(key_is_held(), {"held_back": job_id}).scalar()
            if held is not None:
                return Redriven(job_id, landed=False, reason=held)
    return Redriven(job_id, landed=False, reason="key held by a job that this transaction can't see")


def _redrive_alone(connection: Connection, job_id: int) -> bool:
    if in_autocommit(connection):
        return connection.execute(redrive_statement(), {"ids": [job_id]}).scalar() is not None
    with connection.begin_nested():
        return connection.execute(redrive_statement(), {"ids": [job_id]}).scalar() is not None
