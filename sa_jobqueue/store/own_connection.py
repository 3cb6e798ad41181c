"""One long-lived connection where every statement is a transaction of its own.

Leases and settlements must be durable when their call returns, and a BEGIN and COMMIT around each would cost more than
the statement. Nothing here knows jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.failures import hide_values
from sa_jobqueue.queries.session import backend_pid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, CursorResult, Engine, Executable

    from sa_jobqueue.store.driver import BoundedConnection

_READ_COMMITTED = "READ COMMITTED"
#: The driver's setting for prepared statements, and its name in a URL, which then has the last word.
PREPARE_THRESHOLD = "prepare_threshold"


class OwnConnection:
    """Opened at the first call. Belongs to one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._autocommit = True

    def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement, durable on return, and give all its rows, none where it is a command.

        Errors of the driver pass through, in the server's own first words: its details may quote a whole row.
        """
        connection = self._connection or self._open()
        try:
            if self._autocommit:
                return _all(connection.execute(statement, parameters))
            with connection.begin():
                return _all(connection.execute(statement, parameters))
        except DBAPIError as error:
            hide_values(error)
            raise

    @property
    def driver(self) -> BoundedConnection:
        """The driver's own connection, for what no statement answers."""
        connection: Any = (self._connection or self._open()).connection.driver_connection
        return cast("BoundedConnection", connection)

    @property
    def prepares(self) -> bool:
        """The driver prepares statements here, on the server."""
        return self.driver.prepare_threshold is not None

    def _open(self) -> Connection:
        connection = self._engine.connect()
        # A server, database or role whose default is stricter would make SKIP LOCKED statements fail with
        # serialization errors; only there is it worth an explicit BEGIN per statement.
        self._autocommit = connection.default_isolation_level == _READ_COMMITTED
        level = "AUTOCOMMIT" if self._autocommit else _READ_COMMITTED
        connection = connection.execution_options(isolation_level=level)
        if PREPARE_THRESHOLD not in self._engine.url.query:
            try:
                _judge_prepared_statements(connection)
            except BaseException:  # not judged, it must not be used
                connection.invalidate()
                connection.close()
                raise
        self._connection = connection
        return connection

    def reset(self) -> None:
        """Drop the connection, which may be broken; the next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def close(self) -> None:
        """Give the connection back to the engine's pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _all(result: CursorResult[Any]) -> Sequence[Any]:
    return result.all() if result.returns_rows else ()


def _judge_prepared_statements(connection: Connection) -> None:
    """Prepared statements only where the process that answers is the one that we connected to.

    They save a fifth of a claim and its settlement. A transaction pooler hands each statement to another session, where
    the name is unknown or, worse, another client's statement; such a pooler introduces itself with a process number of
    its own.
    """
    pid = connection.execute(backend_pid()).scalar_one()
    connection.rollback()  # without AUTOCOMMIT the look has begun a transaction
    driver_connection: Any = connection.connection.driver_connection
    if driver_connection.info.backend_pid != pid:
        driver_connection.prepare_threshold = None
