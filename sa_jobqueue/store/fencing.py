"""The completion of one job on a connection of the caller's, as the last write of a transaction that the caller ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import DBAPIError, ProgrammingError

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.failures import values_hidden
from sa_jobqueue.queries import held, session
from sa_jobqueue.records import Landing
from sa_jobqueue.statements.fence import fence
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.callers_connection import CallersConnection
from sa_jobqueue.store.reconcile import misses
from sa_jobqueue.store.reporting import report_all
from sa_jobqueue.store.trouble import refused, sqlstate_of

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection

    from sa_jobqueue.records import LeaseKey, Progress

_UNDEFINED_TABLE = "42P01"


class Fenced(NamedTuple):
    """What a fence found. Landed, the job is done if and only if the transaction `xid` commits."""

    landing: Landing
    xid: int | None = None


def send_fence(
    connection: Connection,
    key: LeaseKey,
    *,
    result: str | None,
    lease: timedelta,
    progress: Progress | None = None,
) -> Fenced:
    """Complete the job in the connection's transaction, waiting for whoever has its row locked. Commits nothing.

    `progress` is the handler's last word; what the database says to it costs no completion, and it waits for nobody.

    Errors of the driver pass through, without the values of rows; the server then lets nothing of the transaction
    through any more. Among them is the serialization failure (SQLSTATE 40001) of REPEATABLE READ and SERIALIZABLE, which
    says nothing of the lease: the row or what else the transaction has read was changed since its snapshot, and only a
    new transaction can see by whom. ConfigurationError: there is no such table where the connection leads.
    """
    if progress is not None:
        _report(connection, key, progress)
    parameters = {"job_id": key[0], "token": key[1], "result_text": result, "lease": lease}
    try:
        with values_hidden():
            row = connection.execute(fence(), parameters).first()
    except ProgrammingError as error:
        if sqlstate_of(error) != _UNDEFINED_TABLE:
            raise
        raise ConfigurationError(
            f"job {key[0]} can't be completed in this transaction: the session is bound to a database without the queue's "
            "tables, or to another schema of it; bind it to the one that the job came from"
        ) from error
    if row is not None:
        return Fenced(Landing.LANDED, row.xid)
    return Fenced(misses(CallersConnection(connection), [key], verb=Verb.COMPLETE)[key].landing)


def _report(connection: Connection, key: LeaseKey, progress: Progress) -> None:
    """In a savepoint of its own, so that the transaction goes on whatever the server says."""
    try:
        report_all(CallersConnection(connection), [(key, progress)])
    except DBAPIError as error:
        if not refused(error):
            raise


def is_in_force(connection: Connection, key: LeaseKey) -> bool:
    """The transaction still has the completion that its fence wrote: no savepoint before it was rolled back to.

    Raises the driver's error where the transaction has failed since, which a COMMIT would not tell.
    """
    with values_hidden():
        row = connection.execute(held.owners(), {"ids": [key[0]]}).first()
    return row is not None and row.status == JobStatus.DONE and row.settled_token == key[1]


def has_written(connection: Connection) -> bool:
    """The connection's transaction has changed or locked a row."""
    with values_hidden():
        return connection.execute(session.written()).scalar_one() is not None
