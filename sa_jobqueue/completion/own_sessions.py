"""Sessions for handlers that bring none: engines with pools of their own, made when first needed.

Never the engines of the runner's loops, for a handler that holds a connection must hold up nobody's renewals.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import create_engine, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session

from sa_jobqueue.completion.nets import watch_engine
from sa_jobqueue.store.engine import DISCREET, handlers_arguments
from sa_jobqueue.store.trouble import useless_session

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator

    from sqlalchemy import URL, Engine, ExceptionContext
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
    from sqlalchemy.pool import ConnectionPoolEntry

#: Beyond this many handlers wait for each other's blocks, half a minute at most: blocks are short, connections are dear.
_POOL_SIZE = 10
#: A connection is trusted for so many seconds after its last use.
_TRUSTED = 1.0
_RETURNED_AT = "sa_jobqueue.returned_at"


class Sessions(Protocol):
    """Where the sessions of blocks come from whose handlers name none."""

    def session(self) -> Session:
        """A new session."""
        ...

    def async_session(self) -> AsyncSession:
        """A new session for the running event loop."""
        ...


class OwnSessions:
    """Sessions on one database (psycopg), from any thread and event loop. `close()` when no handler runs any more.

    An event loop has an engine of its own, since connections can't change loops; it is disposed of when the loop shuts
    down its asynchronous generators, as `asyncio.run()` does.
    """

    def __init__(self, url: URL, *, name: str) -> None:
        self._url = url
        self._options: dict[str, Any] = {
            "pool_size": _POOL_SIZE,
            "max_overflow": 0,
            **DISCREET,
        }
        self._name = name
        #: Not behind a pooler, where the next statement meets another session.
        self.prepares: bool = True
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._async_engines: weakref.WeakKeyDictionary[AbstractEventLoop, AsyncEngine]
        self._async_engines = weakref.WeakKeyDictionary()
        self._keepers: weakref.WeakKeyDictionary[AbstractEventLoop, AsyncGenerator[None, None]]
        self._keepers = weakref.WeakKeyDictionary()

    def session(self) -> Session:
        """A new session, on a pool that all threads share."""
        with self._lock:
            if self._engine is None:
                self._engine = create_engine(self._url, **self._options, connect_args=self._arguments())
                _prepare(self._engine)
        return Session(self._engine)

    def async_session(self) -> AsyncSession:
        """A new session, on the pool of the running event loop. Needs greenlet."""
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine  # the extra `asyncio`

        loop = asyncio.get_running_loop()
        with self._lock:
            if (engine := self._async_engines.get(loop)) is None:
                engine = self._async_engines[loop] = create_async_engine(
                    self._url, **self._options, connect_args=self._arguments()
                )
                _prepare(engine.sync_engine)
                self._keepers[loop] = keeper = _disposed_with_loop(engine)
                _start(keeper)
        return AsyncSession(engine)

    def _arguments(self) -> dict[str, Any]:
        return handlers_arguments(self._url, self._name, prepares=self.prepares)

    def close(self) -> None:
        """Let the connections of threads go; what a handler still has in use is closed when it comes back."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            event.listen(engine.pool, "checkin", _close_returned)
            engine.dispose()


def _prepare(engine: Engine) -> None:
    """For blocks: watched, and its connections are tried before use where they have lain in the pool for a while.

    One that was lost meanwhile must not cost what the handler has done. A try takes as long as a statement, so that what
    was in use a moment ago is trusted. Once a session has turned out to be useless, as after a failover, all are replaced.
    """
    dialect = engine.dialect
    useless = threading.Event()

    def note_error(context: ExceptionContext) -> None:
        if context.sqlalchemy_exception is not None and useless_session(context.sqlalchemy_exception):
            useless.set()

    def note_return(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info[_RETURNED_AT] = time.monotonic()

    def try_out(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
        if useless.is_set():
            useless.clear()
            raise InvalidatePoolError("the pool has sessions that can't be used any more")
        returned_at = record.info.get(_RETURNED_AT)
        if returned_at is None or time.monotonic() - returned_at < _TRUSTED:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            if dialect.is_disconnect(error, connection, None):
                raise InvalidatePoolError from error  # the pool then makes another one
            raise

    watch_engine(engine)
    event.listen(engine, "handle_error", note_error)
    event.listen(engine, "checkin", note_return)
    event.listen(engine, "checkout", try_out)


def _close_returned(_connection: Any, record: ConnectionPoolEntry) -> None:
    """Of a pool that nobody takes from any more."""
    record.invalidate()


async def _disposed_with_loop(engine: AsyncEngine) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await engine.dispose()


def _start(keeper: AsyncGenerator[None, None]) -> None:
    """Up to its yield, which awaits nothing: from then on the loop knows the generator and closes it at its end."""
    with suppress(StopIteration):
        keeper.__anext__().send(None)
