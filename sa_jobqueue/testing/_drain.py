"""`drain()`: the due jobs of a test, run now, in its own transaction, by the statements that a runner sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue import arguments
from sa_jobqueue.handlers import several
from sa_jobqueue.registry import Registry
from sa_jobqueue.store.sessions import run_on
from sa_jobqueue.testing._attempts import EventLoop, check_stand_ins
from sa_jobqueue.testing._draining import Draining

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from sa_jobqueue.store.sessions import AsyncTarget, SyncTarget
    from sa_jobqueue.testing._drained import Drained

#: So many runs are no accident: above it a drain is taken for endless.
DEFAULT_LIMIT = 1000
_ADVICE = (
    "write `await drain(async_session, registry)`, or with a sync session "
    "`await asyncio.to_thread(drain, session, registry)`"
)


@overload
def drain(
    target: SyncTarget,
    registry: Registry,
    *,
    queues: Iterable[str] | None = None,
    limit: int = DEFAULT_LIMIT,
    with_delayed: bool = False,
    raise_errors: bool = True,
    provide: Mapping[Any, Any] | None = None,
) -> Drained: ...


@overload
def drain(
    target: AsyncTarget,
    registry: Registry,
    *,
    queues: Iterable[str] | None = None,
    limit: int = DEFAULT_LIMIT,
    with_delayed: bool = False,
    raise_errors: bool = True,
    provide: Mapping[Any, Any] | None = None,
) -> Coroutine[Any, Any, Drained]: ...


def drain(
    target: Any,
    registry: Registry,
    *,
    queues: Iterable[str] | None = None,
    limit: int = DEFAULT_LIMIT,
    with_delayed: bool = False,
    raise_errors: bool = True,
    provide: Mapping[Any, Any] | None = None,
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

    `ctx.complete()` gives a session on that connection, and takes sessions of the application's that are bound to it: the
    block sees what is uncommitted, and completes the job when its savepoint is released, by the runner's own fence. A
    rollback after that, within the handler's run, takes the completion back.

    `provide={MailClient: FakeClient()}` gives handlers a stand-in for what the registry provides.

    A handler that raises fails the test: its job is settled as a runner would (a retry, or dead), then the error goes
    on to the caller. With `raise_errors=False` it is counted, and kept in `runs`.

    With `with_delayed`, jobs of the future run as well when nothing else is due, in the order of their due times, as
    if each had come: retries with their backoff, snoozes, delays. `ctx.run_at` is the job's own due time then; the row
    shows when it was brought forward.

    Raises DrainError after `limit` runs when jobs are still due (a handler that enqueues itself, or snoozes for ever),
    when a handler has rolled back or broken the transaction, and at its end when the database refuses to let a due job be
    claimed (somebody's trigger); RuntimeError for an async handler where a loop is
    running and nothing is awaited; TypeError or ValueError for arguments that can't work.
    """
    if not isinstance(registry, Registry):
        raise TypeError(f"drain(): expected a Registry second, got {type(registry).__qualname__}")
    arguments.limit(limit)
    check_stand_ins("drain", provide or {}, registry.handlers)
    chosen = None if queues is None else list(several("drain(): queues", queues))

    def work(given: Session | Connection) -> Drained:
        with EventLoop(_ADVICE) as loop:
            draining = Draining(
                given, registry, chosen, loop=loop, with_delayed=with_delayed, provide=provide or {}
            )
            return draining.run(limit=limit, raise_errors=raise_errors)

    return run_on(target, work, caller="drain")
