"""Sessions of an AsyncEngine on the wrong event loop are stopped before they have sent anything.

Async handlers run on a loop of the runner's, and an embedded runner has the application's AsyncEngine within their
reach. Its pool and its connections would serve two loops then: the BEGIN of a handler arrives, its answer does not, and
when the application is given that connection next, its own commit ends a savepoint and nothing else; what it wrote is
lost without a word, or the process dies in the driver. An engine with a NullPool keeps no connection and is for every
loop.
"""

from __future__ import annotations

import asyncio
import weakref

from sqlalchemy import Connection, Engine, NullPool, event
from sqlalchemy.orm import Session, SessionTransaction

_ADVICE = (
    "an async handler runs on the runner's loop, and the application's AsyncEngine is not for it. Take the session of "
    "`async with ctx.complete()`, or an engine of the handlers' own: create_async_engine(..., poolclass=NullPool)"
)
#: The engines that hosts have handed to their runners, and where they work.
_AT_HOME: weakref.WeakKeyDictionary[Engine, weakref.ref[asyncio.AbstractEventLoop]]
_AT_HOME = weakref.WeakKeyDictionary()


def keep_home(engine: Engine) -> None:
    """Sessions of this engine are for the running loop from now on. The engine is the sync side of an AsyncEngine."""
    _AT_HOME[engine] = weakref.ref(asyncio.get_running_loop())


@event.listens_for(Session, "after_transaction_create")
def _refuse_engine(session: Session, _transaction: SessionTransaction) -> None:
    """Before there is a connection, for a pool is as bound to its loop as they are."""
    if not _AT_HOME or not isinstance(engine := session.bind, Engine) or isinstance(engine.pool, NullPool):
        return
    home = known() if (known := _AT_HOME.get(engine)) is not None else None
    if home is None or home.is_closed():
        return
    if (here := _running_loop()) is not None and here is not home:
        raise RuntimeError(
            f"this AsyncSession is of an AsyncEngine that works on another event loop: {_ADVICE}"
        )


@event.listens_for(Session, "after_begin")
def _refuse_connection(_session: Session, _transaction: SessionTransaction, connection: Connection) -> None:
    """The net behind it, for engines that no runner was given: asyncpg's connections know their loop."""
    if connection.dialect.driver != "asyncpg":
        return
    own = getattr(connection.connection.driver_connection, "_loop", None)
    if own is not None and (here := _running_loop()) is not None and own is not here:
        raise RuntimeError(
            f"this AsyncSession was given an asyncpg connection that works on another event loop: {_ADVICE}"
        )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
