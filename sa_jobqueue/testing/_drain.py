"""`drain()`: the due jobs of a test, run now, in its own transaction, by the statements that a runner sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue.handlers import several
from sa_jobqueue.registry import Registry
from sa_jobqueue.store.sessions import run_on
from sa_jobqueue.testing._attempts import EventLoop
from sa_jobqueue.testing._draining import Draining

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sa_jobqueue.testing._drained import Drained

#: So many runs are no accident: above it a drain is taken for endless.
DEFAULT_LIMIT = 1000
_ADVICE = (
    "write `await drain(async_session, registry)`, or with a sync session "
    "`await asyncio.to_thread(drain, session, registry)`"
)


@overload
def drain(
    target: Session | scoped_session[Any] | Connection,
    registry: Registry,
    *,
    queues: Iterable[str] | None = None,
    limit: int = DEFAULT_LIMIT,
    with_scheduled: bool = False,
    raise_errors: bool = True,
) -> Drained: ...


@overload
def drain(
    target: AsyncSession | async_scoped_session[Any] | AsyncConnection,
    registry: Registry,
    *,
    queues: Iterable[str] | None = None,
    limit: int = DEFAULT_LIMIT,
    with_scheduled: bool = False,
    raise_errors: bool = True,
) -> Coroutine[Any, Any, Drained]: ...


def drain(
    target: Any,
    registry: Registry,
    *,
    queues: Iterable[str] | None = None,
    limit: int = DEFAULT_LIMIT,
    with_scheduled: bool = False,
    raise_errors: bool = True,
) -> Drained | Coroutine[Any, Any, Drained]:
    """Run all due jobs of the registry's kinds now, one after the other, until none is due.

        assert drain(session, jobs) == Drained(done=1)
        assert await drain(async_session, jobs) == Drained(done=1)

    Jobs go by priority, due time and id over all queues, or over `queues`; those that handlers enqueue are run too.
    Claims and outcomes are the runner's own statements, sent over the connection of `target` in the transaction it is
    in: jobs that only this transaction sees are run, nothing is committed, and a rollback takes everything back. A
    Session is flushed first; afterwards its objects are expired as by a commit (not with expire_on_commit=False).
    Handlers run in the calling thread, async ones in the running loop, or in one that the drain makes. They see
    uncommitted rows only in sessions that are bound to the same connection. From async code a sync handler runs where
    the loop does: it may use a sync session on the connection, and can't start a loop of its own.

    A handler that raises fails the test: its job is settled as a runner would (a retry, or dead), then the error goes
    on to the caller. With `raise_errors=False` it is counted, and kept in `runs`.

    With `with_scheduled`, jobs of the future run as well when nothing else is due, in the order of their due times, as
    if each had come: retries with their backoff, snoozes, delays. `ctx.run_at` is the job's own due time then; the row
    shows when it was brought forward.

    Raises DrainError after `limit` runs when jobs are still due (a handler that enqueues itself, or snoozes for ever),
    and when a handler has rolled back or broken the transaction; RuntimeError for an async handler where a loop is
    running and nothing is awaited; TypeError or ValueError for arguments that can't work.
    """
    if not isinstance(registry, Registry):
        raise TypeError(f"drain(): expected a Registry second, got {type(registry).__qualname__}")
    if limit < 1:
        raise ValueError(f"drain(): limit: expected a whole number from 1, got {limit!r}")
    chosen = None if queues is None else list(several("drain(): queues", queues))

    def work(given: Session | Connection) -> Drained:
        with EventLoop(_ADVICE) as loop:
            draining = Draining(given, registry, chosen, loop=loop, with_scheduled=with_scheduled)
            return draining.run(limit=limit, raise_errors=raise_errors)

    return run_on(target, work, caller="drain")
