"""`ctx.complete()` and `ctx.complete_in()`: a guard is put around the commits of a session, and taken off at its end.

On the way in the owner sees to the lease, so that a job that is known to be lost fails there. Everything between is
the guard's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from sa_jobqueue.completion.guard import Guard
from sa_jobqueue.completion.nets import guard_of, keep_promise, promise, unwatch, watch, watch_connection
from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.store.sessions import require_bind, run_on

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import timedelta
    from types import TracebackType

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncSession

    from sa_jobqueue.completion.own_sessions import Sessions
    from sa_jobqueue.completion.owner import LeaseOwner
    from sa_jobqueue.records import LeaseKey

_COMPLETE, _COMPLETE_IN = "complete", "complete_in"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a completion of one job goes by.

    `job` names it in errors, `sessions` are for handlers that have none, `own_key` is the unique key
    that its end sets free.
    """

    key: LeaseKey
    job: str
    owner: LeaseOwner
    sessions: Sessions
    lease: timedelta
    result: str | None
    own_key: str | None = None

    def guard(self, session: Session, may_block: Callable[..., None]) -> Guard:
        """Begin the completion, and watch the session. Sends nothing on it."""
        if (other := guard_of(session)) is not None:
            raise RuntimeError(
                f"{self.job}: this session is completing job {other.completion.key[0]} already: use another"
            )
        require_bind(session)
        completion = Completion(self.key, self.result)
        try:
            may_block(self.owner.begin, completion)
        except BaseException as error:
            if (
                completion.fate is Fate.OPEN
            ):  # a task was cancelled: the owner goes on, and may enter what nobody ends
                completion.fate, completion.error = Fate.UNDONE, error
            raise
        guard = Guard(
            completion,
            self.owner,
            session,
            job=self.job,
            lease=self.lease,
            may_block=may_block,
        )
        watch(session, guard, own_key=self.own_key)
        return guard


class Block:
    """One completion, for `with` or `async with`; entered once."""

    __slots__ = ("_guard", "_make", "_session", "_terms")

    def __init__(self, terms: Terms, make: Callable[[], Any] | None) -> None:
        self._terms = terms
        self._make = make
        self._guard: Guard | None = None
        self._session: Any = None

    def __enter__(self) -> Session:
        session = (self._make or self._terms.sessions.session)()
        if not isinstance(session, Session):
            raise _wrong_session(session, "with", "a Session")
        self._enter(session, _call)
        self._session = session
        return session

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        guard, session = self._entered()
        try:
            if error is None:
                _finish(session, guard)
        except BaseException as failure:
            error = failure
            raise
        finally:
            _leave(session, guard, error)

    async def __aenter__(self) -> AsyncSession:
        session = (self._make or self._terms.sessions.async_session)()
        if isinstance(session, Session) or not hasattr(session, "run_sync"):
            raise _wrong_session(session, "async with", "an AsyncSession")
        await session.run_sync(self._enter, _await)
        self._session = session
        return session

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        guard, session = self._entered()
        try:
            if error is None:
                await session.run_sync(_finish, guard)
        except BaseException as failure:
            error = failure
            raise
        finally:
            # To its end, whoever is cancelled meanwhile: a session that was left open would hold the row.
            await asyncio.shield(asyncio.create_task(session.run_sync(_leave, guard, error)))

    def _enter(self, session: Session, may_block: Callable[..., None]) -> None:
        if self._guard is not None:
            raise RuntimeError(f"{self._terms.job}: a block is entered once; call complete() for another one")
        if session.in_transaction():
            raise RuntimeError(
                f"{self._terms.job}: the session that complete() was given is in a transaction already: make a new one, or "
                "call complete_in(session)"
            )
        self._guard = self._terms.guard(session, may_block)
        if not session.autobegin:
            session.begin()

    def _entered(self) -> tuple[Guard, Any]:
        assert self._guard is not None
        return self._guard, self._session


def _finish(session: Session, guard: Guard) -> None:
    if guard.has_landed(session):
        return
    guard.refuse_nothing(session)
    session.commit()


def _leave(session: Session, guard: Guard, error: BaseException | None) -> None:
    try:
        if error is not None:
            with suppress(Exception):  # of a connection that is broken; the error says so already
                session.rollback()
    finally:
        try:
            session.close()
        finally:
            guard.conclude(error)
            unwatch(session)


def join(terms: Terms, session: Any) -> Coroutine[Any, Any, None] | None:
    """The completion joins the transaction that the session is in, and ends with it; a coroutine for an AsyncSession."""
    if (registry := getattr(session, "registry", None)) is not None:  # scoped_session, async_scoped_session
        session = registry()
    may_block = _await if hasattr(session, "run_sync") else _call
    if (promised := getattr(session, "sync_session", None)) is not None:
        promise(promised, terms.job)  # who forgets to await would commit without the job

    def work(target: Session | Connection) -> None:
        if promised is not None:
            keep_promise(promised)
        if not isinstance(target, Session):
            raise TypeError(
                f"{_COMPLETE_IN}(): expected a Session or AsyncSession, got {type(target).__qualname__}"
            )
        guard = terms.guard(target, may_block)
        try:
            connection = guard.find_jobs(target)
            watch_connection(connection, guard)
            guard.connected(connection)
        except BaseException as error:
            guard.conclude(error)
            unwatch(target)
            raise
        guard.home = target.get_nested_transaction() or target.get_transaction()

    return run_on(session, work, caller=_COMPLETE_IN)


def check_factory(sessions: Any) -> Callable[[], Any] | None:
    """What `complete()` was given; TypeError for what makes no sessions."""
    if sessions is None or callable(sessions):
        return sessions  # type: ignore[no-any-return]
    advice = (
        f"; for a session of your own call {_COMPLETE_IN}(session)" if hasattr(sessions, "commit") else ""
    )
    raise TypeError(
        f"{_COMPLETE}(): expected a sessionmaker, an async_sessionmaker or another function without arguments that makes "
        f"sessions, got {type(sessions).__qualname__}{advice}"
    )


def _wrong_session(session: object, form: str, expected: str) -> TypeError:
    return TypeError(
        f"`{form} ctx.complete(...)` needs {expected}, and the function it was given made {type(session).__qualname__}: "
        "`with` is for Session, `async with` for AsyncSession"
    )


def _call(work: Callable[..., None], *arguments: Any) -> None:
    work(*arguments)


def _await(work: Callable[..., None], *arguments: Any) -> None:
    """In another thread, while the event loop goes on."""
    from sqlalchemy.util import await_only  # needs greenlet, which only async sessions bring

    await_only(asyncio.to_thread(work, *arguments))
