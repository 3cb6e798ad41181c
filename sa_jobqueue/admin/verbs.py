"""The verbs for people: the arguments are checked, then the store does its work in the caller's transaction.

Each answers once per id, in the order given; every argument is checked before anything is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from sqlalchemy.orm import Session

from sa_jobqueue import arguments
from sa_jobqueue.admin.ids import checked
from sa_jobqueue.store import operator
from sa_jobqueue.store.sessions import connection_of, read_anew, run_on

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from sa_jobqueue.records import OperatorResult
    from sa_jobqueue.store.sessions import AsyncTarget, SyncTarget

    Results = list[OperatorResult]
    Later = Coroutine[Any, Any, list[OperatorResult]]


@overload
def cancel(target: SyncTarget, ids: Iterable[int]) -> Results: ...


@overload
def cancel(target: AsyncTarget, ids: Iterable[int]) -> Later: ...


def cancel(target: Any, ids: Iterable[int]) -> Results | Later:
    """Cancel ready jobs at once, and ask for the cancellation of running ones; the caller's commit makes it real.

    A running job stays running until its runner lets it go: the runner learns of the request with its next renewal, a
    third of a lease away at most, and the handler sees it in `ctx.cancel_requested`. The job is cancelled unless it is
    done first; one that has not begun won't. A job of key scope `unfinished` lets its key go when it is cancelled.

    Answers once per id, in the order given; a job that is finished already says so. Waits for rows that another
    transaction has locked. Job objects in a Session are expired, so that their next read shows the change. With an async
    target this is a coroutine. Raises TypeError for another target, or for ids that are no ints.
    """
    return _apply("cancel", target, ids, operator.cancel)


@overload
def redrive(target: SyncTarget, ids: Iterable[int]) -> Results: ...


@overload
def redrive(target: AsyncTarget, ids: Iterable[int]) -> Later: ...


def redrive(target: Any, ids: Iterable[int]) -> Results | Later:
    """Send dead or cancelled jobs back to ready with a new budget of attempts; the caller's commit makes it real.

    A request for cancellation, the reason and a past `expires_at` are cleared; errors and the count of attempts stay.
    A job of key scope `unfinished` takes its key again: when another job holds it by now, the job stays and its reason
    is "key held by job N". Answers, waits, expires and raises as `cancel()` does.
    """
    return _apply("redrive", target, ids, operator.redrive)


@overload
def reschedule(
    target: SyncTarget,
    ids: Iterable[int],
    *,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    priority: int | None = None,
) -> Results: ...


@overload
def reschedule(
    target: AsyncTarget,
    ids: Iterable[int],
    *,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    priority: int | None = None,
) -> Later: ...


def reschedule(
    target: Any,
    ids: Iterable[int],
    *,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    priority: int | None = None,
) -> Results | Later:
    """Give ready jobs another due time, another priority, or both; the caller's commit makes it real.

    The due time is `run_at`, an aware datetime, or `delay` from now on the database's clock, `timedelta(0)` for at once.
    A job that would expire by then is left as it is, and so is one that isn't ready; the answer says why. Priority 0
    goes first, 9 last. Answers, waits and expires as `cancel()` does. Raises TypeError and ValueError as `enqueue()`
    does, and TypeError when there is nothing to change.
    """
    arguments.check_times(run_at=run_at, delay=delay)
    if priority is not None:
        priority = arguments.priority(priority)
    elif run_at is None and delay is None:
        raise TypeError("reschedule(): nothing to change: pass run_at or delay, priority, or both")

    def act(connection: Connection, wanted: list[int]) -> Results:
        return operator.reschedule(connection, wanted, run_at=run_at, delay=delay, priority=priority)

    return _apply("reschedule", target, ids, act)


def _apply(
    verb: str, target: Any, ids: Iterable[int], act: Callable[[Connection, list[int]], Results]
) -> Results | Later:
    wanted = checked(verb, ids)

    def work(given: Session | Connection) -> Results:
        results = act(connection_of(given), wanted)
        if isinstance(given, Session):
            read_anew(given, {result.id for result in results})
        return results

    return run_on(target, work, caller=verb)
