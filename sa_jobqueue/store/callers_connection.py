"""A connection of the caller's, as the store uses it.

Nothing is committed or rolled back here: every statement stands in a savepoint of its own, so that one that the
database refuses leaves the caller's transaction as it was. Nothing here knows jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.failures import hide_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Executable


class CallersConnection:
    """Works in the transaction that `connection` is in, and begins one where there is none. The caller ends it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement within a savepoint and give all its rows."""
        connection = self._connection
        try:
            if in_autocommit(connection):
                return connection.execute(statement, parameters).all()
            with connection.begin_nested():
                return connection.execute(statement, parameters).all()
        except DBAPIError as error:
            hide_values(error)
            raise

    def reset(self) -> None:
        """Nothing: whether the connection is of use is the caller's to judge."""

    def close(self) -> None:
        """Nothing: the connection is the caller's."""


def in_autocommit(connection: Connection) -> bool:
    """Each statement is its own transaction there: a savepoint is neither needed nor possible."""
    dbapi_connection = connection.connection.dbapi_connection
    # With drivers of other databases, which are refused elsewhere, it is missing, a method, or the number -1.
    return getattr(dbapi_connection, "autocommit", False) is True
