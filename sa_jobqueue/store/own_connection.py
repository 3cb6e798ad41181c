"""One long-lived connection where every statement is a transaction of its own.

Leases and settlements must be durable when their call returns, and a BEGIN and COMMIT around each would cost more than
the statement. Nothing here knows jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Engine, Executable

_READ_COMMITTED = "READ COMMITTED"


class OwnConnection:
    """Opened at the first call. Belongs to one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._autocommit = True

    def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement, durable on return, and give all its rows. Errors of the driver pass through."""
        connection = self._connection or self._open()
        if self._autocommit:
            return connection.execute(statement, parameters).all()
        with connection.begin():
            return connection.execute(statement, parameters).all()

    def _open(self) -> Connection:
        connection = self._engine.connect()
        # A server, database or role whose default is stricter would make SKIP LOCKED statements fail with
        # serialization errors; only there is it worth an explicit BEGIN per statement.
        self._autocommit = connection.default_isolation_level == _READ_COMMITTED
        level = "AUTOCOMMIT" if self._autocommit else _READ_COMMITTED
        self._connection = connection.execution_options(isolation_level=level)
        return self._connection

    def reset(self) -> None:
        """Drop the connection without a word to the server; the next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def close(self) -> None:
        """Give the connection back to the engine's pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
