"""Four jobs and what becomes of their savepoints."""

from __future__ import annotations

from sqlalchemy.orm import Session

from sa_jobqueue import Job


def in_savepoints(session: Session, first: Job, second: Job, third: Job, fourth: Job) -> None:
    """Rolled back, released, none, and released inside one that is rolled back: exactly the second and third come in."""
    savepoint = session.begin_nested()
    session.add(first)
    session.flush()
    savepoint.rollback()
    with session.begin_nested():
        session.add(second)
    session.add(third)
    outer = session.begin_nested()
    with session.begin_nested():
        session.add(fourth)
    outer.rollback()
