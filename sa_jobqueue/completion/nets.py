"""Where the guards hang: listeners of sessions and connections, and who is asked when one of them fires.

Those of sessions sit on the class, once for the process, so that nothing piles up on sessions that live long; a session
that completes nothing pays for one look into its `info`. A connection gets its own when a guarded transaction begins on
it, for an engine's would cost every statement of the application; they are functions of the module, so that one that
lives on gets them once. Our own engines have them for all their connections: to hang them up takes longer than a commit.
"""

from __future__ import annotations

import weakref
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, ExceptionContext, event
from sqlalchemy.orm import Session, SessionTransaction

from sa_jobqueue.completion.guard import Guard
from sa_jobqueue.store.sessions import note_own_key

_KEY = "sa_jobqueue.completion"
_AWAITED = "sa_jobqueue.completion.awaited"
#: Weak on both sides: neither keeps the other, nor what it belongs to.
_GUARDS: weakref.WeakKeyDictionary[Connection, weakref.ref[Guard]] = weakref.WeakKeyDictionary()
_WATCHED: weakref.WeakSet[Engine] = weakref.WeakSet()
#: Errors are told by dialects, there is no nearer place; once each for good, which costs nobody who has no error.
_ANSWERING: weakref.WeakSet[Dialect] = weakref.WeakSet()


def guard_of(session: Session) -> Guard | None:
    """The guard that watches the session."""
    guard: Guard | None = session.info.get(_KEY)
    return None if guard is None or guard.over else guard


def watch(session: Session, guard: Guard, *, own_key: str | None) -> None:
    """Every commit of the session asks the guard from now on, until that is over. `own_key` is what that sets free."""
    session.info[_KEY] = guard
    note_own_key(session, own_key)


def watch_connection(connection: Connection, guard: Guard) -> None:
    """The same for a connection of the session's transaction."""
    if connection not in _GUARDS and connection.engine not in _WATCHED:
        _listen(connection)
    _GUARDS[connection] = weakref.ref(guard)


def watch_engine(engine: Engine) -> None:
    """All connections that the engine makes from now on have their listeners."""
    _listen(engine)
    _WATCHED.add(engine)


def _listen(target: Connection | Engine) -> None:
    event.listen(target, "commit", _committing)
    event.listen(target, "commit_twophase", _committing_twophase)
    event.listen(target, "prepare_twophase", _preparing)
    event.listen(target, "before_cursor_execute", _executing)
    if target.dialect not in _ANSWERING:
        event.listen(target if isinstance(target, Engine) else target.engine, "handle_error", _failing)
        _ANSWERING.add(target.dialect)


def unwatch(session: Session) -> None:
    """The session belongs to nobody's completion any more."""
    session.info.pop(_KEY, None)
    note_own_key(session, None)


def promise(session: Session, job: str) -> None:
    """A completion of this job was asked for, and begins when it is awaited: until then the session can't commit."""
    session.info[_AWAITED] = job


def keep_promise(session: Session) -> None:
    """It was awaited, or its transaction is gone."""
    session.info.pop(_AWAITED, None)


@event.listens_for(Session, "after_begin")
def _connected(session: Session, _transaction: SessionTransaction, connection: Connection) -> None:
    if (guard := guard_of(session)) is not None:
        watch_connection(connection, guard)
        guard.connected(connection)


@event.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    if (job := session.info.get(_AWAITED)) is not None:
        raise RuntimeError(
            f"{job}: complete_in() of an AsyncSession was not awaited: await ctx.complete_in(session)"
        )
    if (guard := guard_of(session)) is not None:
        guard.before_commit(session)


@event.listens_for(Session, "after_commit")
def _after_commit(session: Session) -> None:
    if (guard := guard_of(session)) is not None:
        guard.after_commit(session)


@event.listens_for(Session, "after_transaction_end")
def _transaction_ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        keep_promise(session)  # nothing was committed, so that nothing is owed
    if (guard := guard_of(session)) is not None:
        guard.transaction_ended(transaction)
        if guard.over:
            unwatch(session)


def _committing(connection: Connection) -> None:
    if (guard := _guard_on(connection)) is not None:
        guard.committing(connection)


def _committing_twophase(connection: Connection, _xid: Any, is_prepared: bool) -> None:
    if not is_prepared and (guard := _guard_on(connection)) is not None:
        guard.committing(connection)


def _preparing(connection: Connection, _xid: Any) -> None:
    if (guard := _guard_on(connection)) is not None:
        guard.preparing(connection)


def _executing(
    connection: Connection, _cursor: Any, _statement: str, _parameters: Any, _context: Any, _many: bool
) -> None:
    if (guard := _guard_on(connection)) is not None:
        guard.executing(connection)


def _failing(context: ExceptionContext) -> None:
    if context.connection is not None and (guard := _guard_on(context.connection)) is not None:
        guard.failing(context.connection, context.sqlalchemy_exception)


def _guard_on(connection: Connection) -> Guard | None:
    reference = _GUARDS.get(connection)
    guard = None if reference is None else reference()
    return None if guard is None or guard.over else guard
