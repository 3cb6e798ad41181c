"""What becomes of a pending Job once its row is known: the same object turns persistent, as if the ORM had written it.

The row may be its own, or that of an earlier job with the same key. It may even be in the session already, as another
object: then that one stays, everything that points at the newcomer is pointed at it, and the newcomer is left outside
the session, readable and free to be added again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import inspect
from sqlalchemy.orm import PassiveFlag
from sqlalchemy.orm.attributes import get_history
from sqlalchemy.orm.collections import collection_adapter
from sqlalchemy.orm.util import identity_key

from sa_jobqueue.entry.request import COLUMNS, forget, request_of, restore, shown_by
from sa_jobqueue.models import Job
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.sessions import note_changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy.orm import InstanceState, RelationshipProperty, Session

    from sa_jobqueue.records import Inserted, NewJob

#: A row as the INSERT leaves it, where neither the request nor the database decides.
_NEW_ROW: dict[str, Any] = dict.fromkeys(COLUMNS) | {
    "status": JobStatus.READY.value,
    "attempts": 0,
    "returned": 0,
}
#: What a collection has of its own, without asking the database.
_ADDED_ALONE = PassiveFlag.PASSIVE_NO_INITIALIZE | PassiveFlag.INCLUDE_PENDING_MUTATIONS
_NEVER_LOADED = ("write_only", "dynamic")
#: The jobs outside of their session for which one inside stands, as long as somebody else has them.
_TWINS: WeakKeyDictionary[Job, WeakSet[Job]] = WeakKeyDictionary()


def adopt(session: Session, sent: Sequence[tuple[Job, NewJob]], answers: Sequence[Inserted]) -> None:
    """Turn these pending jobs persistent in `session`; `answers` are the store's, in the same order."""
    created = []
    for (job, new_job), answer in zip(sent, answers, strict=True):
        if answer.created:
            _show_created(job, new_job, answer)
            created.append(job)
    _become_persistent(session, created)
    holders: dict[Job, Job] = {}
    for (job, _), answer in zip(sent, answers, strict=True):
        if answer.created:
            continue
        if (holder := session.identity_map.get(identity_key(Job, answer.id))) is None:
            _show_existing(job, answer)
            _become_persistent(session, [job])
        else:
            _leave_outside(session, job, answer, holder)
            holders[job] = holder
    if holders:
        _point_at_holders(session, holders)


def undo(job: Job) -> None:
    """The insert was rolled back: show the request again, in this object and in those that it stood for."""
    twins = _TWINS.pop(job, ())
    told = job.enqueued
    restore(job)
    for twin in twins:
        if told and twin.enqueued and twin.enqueued.id == told.id and inspect(twin).transient:
            restore(twin)


def pointers(session: Session) -> Iterator[tuple[object, RelationshipProperty[Any], Sequence[Any]]]:
    """Every new or changed object of the session with a relationship to Job, and the jobs that it holds, as far as known.

    A collection that nobody has loaded, or that is never loaded whole, is known by what was added to it since.
    """
    for obj in [*session.new, *session.dirty]:
        state = inspect(obj)
        for relationship in state.mapper.relationships:
            if relationship.mapper.class_ is Job and (there := _held(state, relationship)):
                yield obj, relationship, there


def _held(state: InstanceState[Any], relationship: RelationshipProperty[Any]) -> Sequence[Any]:
    value: Any = state.dict.get(relationship.key)
    if not relationship.uselist:
        return () if value is None else (value,)
    if hasattr(value, "_sa_adapter"):
        return tuple(collection_adapter(value))
    return get_history(state.obj(), relationship.key, _ADDED_ALONE).added or ()


def _show_created(job: Job, new_job: NewJob, answer: Inserted) -> None:
    # Every column, as the object may have shown another row before. The payload is the one with its references resolved.
    request = request_of(job)
    payload = vars(job)["payload"]
    vars(job).update(_NEW_ROW)
    vars(job).update(shown_by(request))
    vars(job).update(answer.values)
    vars(job).update(
        payload=payload,
        errors=[],
        idempotency_key=new_job.idempotency_key,
        key_scope=new_job.key_scope,
        _enqueued=answer.told,
    )


def _leave_outside(session: Session, job: Job, answer: Inserted, holder: Job) -> None:
    session.expunge(job)
    payload = vars(job)["payload"]
    if answer.outcome in ("replaced", "rescheduled"):
        _show_changed(session, holder, answer)
    _show_existing(job, answer)
    if answer.outcome == "replaced":
        vars(holder)["payload"] = payload
    vars(job).update({name: vars(holder)[name] for name in COLUMNS if name in vars(holder)})
    _TWINS.setdefault(holder, WeakSet()).add(job)


def _show_changed(session: Session, holder: Job, answer: Inserted) -> None:
    """The row of an object that was here before has just been changed by its key."""
    for name in COLUMNS:
        vars(holder).pop(name, None)  # what is not told is read when somebody asks
    vars(holder).update(answer.values)
    note_changed(session, [holder])


def _show_existing(job: Job, answer: Inserted) -> None:
    forget(job)
    vars(job).update(answer.values)
    vars(job)["_enqueued"] = answer.told


def _become_persistent(session: Session, jobs: Iterable[Job]) -> None:
    """The one private call into SQLAlchemy: what a flush does with the objects it has inserted.

    There is no public one that makes a rollback, also of a savepoint, turn the object transient again. (With
    `make_transient_to_detached()` and `session.add()` it stays persistent without a row.)
    """
    session._register_persistent({inspect(job) for job in jobs})  # noqa: SLF001


def _point_at_holders(session: Session, holders: dict[Job, Job]) -> None:
    """Everything that points at a job left outside points at the one that stands for its row: one look at each object."""
    for obj, relationship, there in list(pointers(session)):
        if not (newcomers := [job for job in there if job in holders]):
            continue
        name = relationship.key
        if not relationship.uselist:
            setattr(obj, name, holders[newcomers[0]])
        elif relationship.lazy in _NEVER_LOADED:
            written = getattr(obj, name)
            for job in newcomers:
                written.remove(job)
                written.add(holders[job])
        else:
            get_history(
                obj, name, PassiveFlag.PASSIVE_OFF | PassiveFlag.NO_RAISE
            )  # loads what is not there yet
            adapter = collection_adapter(vars(obj)[name])
            known = set(adapter)
            for job in newcomers:
                adapter.remove_with_event(job)
                if (holder := holders[job]) not in known:
                    known.add(holder)
                    adapter.append_with_event(holder)
