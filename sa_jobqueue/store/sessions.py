"""The way from a session of the caller's to the database where its jobs live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.models import Job

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session


def job_connection(session: Session) -> Connection:
    """The connection of the session's transaction that Job is bound to; a session may be bound to several engines."""
    return session.connection(bind_arguments={"mapper": Job.__mapper__})
