"""`enqueue_many()`: many jobs at once, over a session or a connection, in its transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import inspect
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import instance_state

from sa_jobqueue.batch import Batch
from sa_jobqueue.entry.again import refuse_stored, told_before
from sa_jobqueue.entry.keys import refuse_own_key
from sa_jobqueue.entry.objects import Listed, Passing
from sa_jobqueue.entry.references import stored_value
from sa_jobqueue.entry.request import passed_instead, request_of
from sa_jobqueue.errors import EnqueueError
from sa_jobqueue.models import Job
from sa_jobqueue.store.inserts import enqueue_jobs
from sa_jobqueue.store.same_key import CHANGES
from sa_jobqueue.store.sessions import enqueuing_connection, own_key, read_anew, run_on

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sqlalchemy import Connection
    from sqlalchemy.orm import InstanceState

    from sa_jobqueue.entry.objects import Objects
    from sa_jobqueue.payloads import Ref
    from sa_jobqueue.records import Enqueued, NewJob
    from sa_jobqueue.store.sessions import AsyncTarget, SyncTarget

_CHANGED = frozenset(CHANGES.values())


@overload
def enqueue_many(target: SyncTarget, jobs: Iterable[Job]) -> list[Enqueued]: ...


@overload
def enqueue_many(target: AsyncTarget, jobs: Iterable[Job]) -> Coroutine[Any, Any, list[Enqueued]]: ...


def enqueue_many(target: Any, jobs: Iterable[Job]) -> list[Enqueued] | Coroutine[Any, Any, list[Enqueued]]:
    """Insert jobs from `enqueue()` now, and tell for each, in order, its id and what became of it.

    One statement for up to 5,000 jobs; nothing is committed, and a session flushes nothing. Several jobs with one key
    are treated as if they came one after another. The Job objects stay outside the session, and `enqueued` is set on
    those that the caller keeps: no others are held, so that a generator makes a large batch in little memory. Objects of a
    Session whose rows were replaced or rescheduled are expired, so that their next read shows the change. With an async
    target this is a coroutine, and nothing happens until it is awaited. On a connection in AUTOCOMMIT every
    statement is a transaction of its own; a session in it is refused.

    Raises what the iterable raises, and TypeError, ValueError or EnqueueError for an item that can't be inserted; a
    note names its index, and nothing has been inserted.
    """
    return run_on(target, lambda given: _enqueue_many(given, jobs), caller="enqueue_many")


def _enqueue_many(target: Session | Connection, jobs: Iterable[Job]) -> list[Enqueued]:
    objects, batch, again = _collected(jobs)
    if not batch:
        return []
    refuse_own_key(own_key(target), batch)
    connection = enqueuing_connection(target)
    if again:
        refuse_stored(connection, again)
    told = enqueue_jobs(connection, batch)
    if isinstance(target, Session):
        read_anew(target, {one.id for one in told if one.outcome in _CHANGED})
    for position, job in objects.there():
        vars(job)["_enqueued"] = told[position]
    return told


def _collected(jobs: Any) -> tuple[Objects, Batch, list[int]]:
    """Everything the iterable gives, checked, before the first SQL; which of the objects are still there, later on; and ids
    that some of them were told before.
    """
    if not isinstance(jobs, Iterable):
        one = ": write [job]" if isinstance(jobs, Job) else ""
        raise TypeError(f"enqueue_many(): expected several jobs second, got {passed_instead(jobs)}{one}")
    objects: Objects = Passing()
    if isinstance(jobs, Sequence):
        jobs = tuple(jobs)  # under asyncio others may change a list before it is answered
        objects = Listed(jobs)
    batch = Batch()
    again: list[int] = []
    try:
        for job in jobs:
            batch.append(_complete(job, objects))
            if "_enqueued" in vars(job) and (told := told_before(job)) is not None:
                again.append(told)
    except Exception as error:
        error.add_note(f"enqueue_many(): at index {len(batch)} of the jobs; none was inserted")
        raise
    return objects, batch, again


def _complete(job: Any, objects: Objects) -> NewJob:
    if not isinstance(job, Job):
        raise TypeError(f"expected a Job from enqueue(), got {passed_instead(job)}")
    if not objects.add(job):
        raise ValueError(f"{job!r} is there twice: make one Job for each with enqueue()")
    state = instance_state(job)
    if state.key is not None:
        raise EnqueueError(f"{job!r} is stored already: make another with enqueue()")
    if state.session is not None:
        raise EnqueueError(
            f"{job!r} was added to a session, whose flush inserts it: leave out session.add(job)"
        )
    return request_of(job).resolved(_stored_only)[0]


def _stored_only(placeholder: Ref) -> Any:
    state: InstanceState[Any] = inspect(placeholder.target)
    if state.key is None:
        raise EnqueueError(
            f"the payload has ref({type(placeholder.target).__name__}), and that object has no row yet: "
            "session.flush() first, or session.add() the job, which is inserted in the same flush"
        )
    return stored_value(placeholder, state)
