"""The way from a session of the caller's, or a connection, sync or async, to the database where its jobs live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session
from sqlalchemy.orm.util import identity_key

from sa_jobqueue.errors import ConfigurationError, EnqueueError
from sa_jobqueue.models import Job
from sa_jobqueue.statements.fence import fence
from sa_jobqueue.store.callers_connection import in_autocommit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import scoped_session

    #: What callers may hand over: it is done at once for the first, as a coroutine for the second.
    SyncTarget = Session | scoped_session[Any] | Connection
    AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection

AnswerT = TypeVar("AnswerT")

_OWN_KEY = "sa_jobqueue.own_key"


def writing_connection(session: Session) -> Connection:
    """The connection of the session's transaction that Job is bound to; a session may be bound to several engines.

    A statement that writes goes along, for sessions that send reads elsewhere. Raises ConfigurationError for a session that
    knows no engine for jobs.
    """
    try:
        return session.connection(bind_arguments=_write_arguments())
    except UnboundExecutionError as error:
        raise _unbound(error) from error


def require_bind(session: Session) -> None:
    """Raise ConfigurationError for a session that knows no engine for jobs. Connects to nothing."""
    try:
        session.get_bind(**_write_arguments())
    except UnboundExecutionError as error:
        raise _unbound(error) from error


def _write_arguments() -> dict[str, Any]:
    return {"mapper": Job.__mapper__, "clause": fence()}


def _unbound(error: UnboundExecutionError) -> ConfigurationError:
    return ConfigurationError(
        f"the session is not bound to the database of the jobs ({error}): give it an engine, or add Job to its binds: "
        "Session(binds={Job: engine, ...})"
    )


def enqueuing_connection(target: Session | Connection) -> Connection:
    """The connection itself, or that of the session's transaction, in which jobs come with all else.

    Raises ConfigurationError for a session that knows no engine for jobs, and EnqueueError for one whose statements are
    each committed at once: a job would be there whatever becomes of the rest. Who passes such a connection has it before
    his eyes.
    """
    if isinstance(target, Connection):
        return target
    connection = writing_connection(target)
    if in_autocommit(connection):
        raise EnqueueError(
            "the session's engine is in AUTOCOMMIT: the job would be stored at once, also when the session is rolled back; "
            "give the session an engine without it (isolation_level), or pass a connection to enqueue_many()"
        )
    return connection


def note_own_key(session: Session, key: str | None) -> None:
    """The session's transaction sets this unique key free, by the end of the job that it completes; None for no key."""
    if key is not None:
        session.info[_OWN_KEY] = key
    else:
        session.info.pop(_OWN_KEY, None)


def own_key(target: Session | Connection) -> str | None:
    """The unique key that the session's transaction sets free."""
    return target.info.get(_OWN_KEY) if isinstance(target, Session) else None


def read_anew(session: Session, ids: Iterable[int]) -> None:
    """Statements have changed these rows: their Job objects, where the session has any, are read when somebody asks.

    Once more when that is rolled back, also to a savepoint.
    """
    known = (session.identity_map.get(identity_key(Job, job_id)) for job_id in ids)
    if touched := [job for job in known if job is not None]:
        for job in touched:
            session.expire(job)
        note_changed(session, touched)


def note_changed(session: Session, touched: Iterable[Job]) -> None:
    """Statements have changed the rows of these objects: a rollback, also of a savepoint, makes them read their rows again.

    As after an UPDATE of the session's own. There is no public call.
    """
    session._register_altered({inspect(job) for job in touched})  # noqa: SLF001


def connection_of(target: Session | Connection) -> Connection:
    """The connection itself, or that of the session's transaction.

    Reads go where jobs are written, to see what is pending.
    """
    return target if isinstance(target, Connection) else writing_connection(target)


def run_on(
    target: Any, work: Callable[[Session | Connection], AnswerT], *, caller: str
) -> AnswerT | Coroutine[Any, Any, AnswerT]:
    """Do `work` on a session or connection of any kind: at once, or for an async one as a coroutine.

    The work itself is written once, for sync ones. Raises TypeError, naming the `caller`, for any other target.
    """
    if (registry := getattr(target, "registry", None)) is not None:  # scoped_session, async_scoped_session
        target = registry()
    if isinstance(target, Session | Connection):
        return work(target)
    if not hasattr(target, "run_sync"):
        raise TypeError(
            f"{caller}(): expected a Session, Connection, AsyncSession or AsyncConnection first, got "
            f"{type(target).__qualname__}"
        )

    # AsyncSession and AsyncConnection, which need greenlet and so are not imported here.
    async def answer() -> AnswerT:
        answered: AnswerT = await target.run_sync(work)
        return answered

    answer.__qualname__ = caller  # Python's warning of a forgotten await tells it
    return answer()
