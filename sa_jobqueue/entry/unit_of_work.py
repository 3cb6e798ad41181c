"""Jobs in the caller's flush: one INSERT for all of them, before the unit of work writes its own rows.

The listeners sit on `sqlalchemy.orm.Session`, so that sessions of every make and age have them: sessionmaker,
scoped_session, SQLModel, AsyncSession. A flush without jobs pays for one look at its new objects. Jobs go first because a
foreign key may point at them; only a job whose payload refers to a row of the same flush goes last, and is pending until
then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue.entry.adoption import adopt, pointers, undo
from sa_jobqueue.entry.again import refuse_stored, told_before
from sa_jobqueue.entry.keys import refuse_own_key
from sa_jobqueue.entry.references import stored_value
from sa_jobqueue.entry.request import request_of
from sa_jobqueue.errors import DuplicateKeyError, EnqueueError, UnfencedWriteError
from sa_jobqueue.models import Job
from sa_jobqueue.store.inserts import insert_jobs
from sa_jobqueue.store.sessions import enqueuing_connection, own_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.orm import UOWTransaction

    from sa_jobqueue.payloads import Ref
    from sa_jobqueue.records import NewJob

_WAITING = "sa_jobqueue.waiting"


class _NotYetError(Exception):
    """A reference has no value before the flush has written its row."""


@event.listens_for(Session, "before_flush")
def _insert_pending_jobs(session: Session, flush: UOWTransaction, instances: Sequence[Any] | None) -> None:
    if session.deleted:
        _refuse_deleted(session)
    if not (jobs := [obj for obj in session.new if isinstance(obj, Job)]):
        return
    _refuse_one_way_relationships(jobs)
    if again := [told for job in jobs if (told := told_before(job)) is not None]:
        refuse_stored(enqueuing_connection(session), again)
    ready, waiting = _split(session, jobs)
    if waiting:
        _refuse_cycles(session, waiting)
        _refuse_late_errors(waiting)
        if instances is not None:
            raise EnqueueError(
                "a payload with a ref() needs a whole flush: call session.flush() without objects"
            )
    if waiting := _insert(session, ready, waiting):
        # Listed, so that the flush knows them and writes nothing: they stay pending whatever becomes of it. Outside the
        # session they would be lost with a listener that raises after this one.
        for job in waiting:
            flush.register_object(inspect(job), listonly=True)
        flush.attributes[_WAITING] = waiting


@event.listens_for(Session, "after_flush")
def _keep_waiting_jobs_pending(session: Session, flush: UOWTransaction) -> None:
    if waiting := flush.attributes.get(_WAITING):
        _refuse_pointers(session, waiting)  # a later listener may have made one
        for job in waiting:
            del flush.states[inspect(job)]  # what is listed when the flush ends becomes persistent


@event.listens_for(Session, "after_flush_postexec")
def _insert_waiting_jobs(session: Session, flush: UOWTransaction) -> None:
    jobs = [job for job in flush.attributes.pop(_WAITING, ()) if job in session]
    if waiting := _insert(session, *_split(session, jobs)):
        raise EnqueueError(f"{waiting[0]!r}: the flush did not write the row that its payload refers to")


@event.listens_for(Session, "persistent_to_transient")
def _undo_rolled_back(_session: Session, obj: object) -> None:
    if isinstance(obj, Job):
        undo(obj)


def _insert(session: Session, ready: list[tuple[Job, NewJob]], waiting: list[Job]) -> list[Job]:
    """Insert what is ready, and what a reference to another job held up; the rest is returned."""
    while ready:
        new_jobs = [new_job for _, new_job in ready]
        refuse_own_key(own_key(session), new_jobs)
        connection = enqueuing_connection(session)
        try:
            answers = insert_jobs(connection, new_jobs)
        except DuplicateKeyError as error:
            # It would be refused again by the next flush, and the caller is told that the transaction can go on.
            for index in error.indexes:
                session.expunge(ready[index][0])
            raise
        except DBAPIError:
            _spoil(session)
            raise
        adopt(session, ready, answers)
        ready, waiting = _split(session, waiting)
    return waiting


def _spoil(session: Session) -> None:
    """A database's error has cost the transaction: from now on the session says so, as after an error of the flush's own.

    Else whoever caught it could commit, and PostgreSQL would answer with a ROLLBACK that nobody hears of. There is no public
    call: this begins and gives up what a flush does its work in.
    """
    session._autobegin_t()._begin().rollback(_capture_exception=True)  # noqa: SLF001


def _split(session: Session, jobs: Iterable[Job]) -> tuple[list[tuple[Job, NewJob]], list[Job]]:
    """The jobs whose row is complete, and those that refer to one that has no key yet."""
    ready: list[tuple[Job, NewJob]] = []
    waiting: list[Job] = []
    for job in jobs:
        try:
            new_job, payload = request_of(job).resolved(lambda placeholder: _value(session, placeholder))
        except _NotYetError:
            waiting.append(job)
        else:
            vars(job)["payload"] = payload
            ready.append((job, new_job))
    return ready, waiting


def _value(session: Session, placeholder: Ref) -> Any:
    target = placeholder.target
    state = inspect(target)
    if isinstance(target, Job):
        if state.pending and state.session is session:
            raise _NotYetError  # whatever id it shows is that of a row it stood for earlier
        # It may be outside the session, where another object stands for its row.
        if target.enqueued is not None:
            return target.enqueued.id
    if state.session is not session or state.deleted or target in session.deleted:
        raise EnqueueError(
            f"a payload has ref({type(target).__name__}), and that object is not in the session of the job, or is "
            "being deleted: session.add() it as well, or pass its key as a plain value"
        )
    if state.key is not None:
        return stored_value(placeholder, state)
    if (value := state.dict.get(placeholder.attribute)) is None:
        raise _NotYetError
    return value


def _refuse_deleted(session: Session) -> None:
    for obj in session.deleted:
        if isinstance(obj, Job):
            raise UnfencedWriteError(
                f"{obj!r} can't be deleted through the ORM, past the lease that guards it: a job that must not run is "
                "cancelled (sa_jobqueue.admin.cancel), finished ones are pruned by every runner, and by sa_jobqueue.admin.prune. "
                "session.expunge(job) takes the mark off; where a relationship to Job brought the deletion, keep "
                "'delete' out of its cascade"
            )


def _refuse_one_way_relationships(jobs: Iterable[Job]) -> None:
    """The unit of work meets a job as a stored row, and writes nothing for what it holds: only the other side counts."""
    one_way = [
        relationship.key
        for relationship in Job.__mapper__.relationships
        if not relationship.viewonly and all(reverse.viewonly for reverse in relationship._reverse_property)  # noqa: SLF001  # nobody tells else
    ]
    for name in one_way:
        for job in jobs:
            if inspect(job).attrs[name].history.added:
                raise EnqueueError(
                    f"Job.{name} of {job!r} has members that would lose their foreign key, as the job is not stored yet "
                    "and no relationship leads back to it: declare both sides with back_populates, or call "
                    "session.flush() before you fill it"
                )


def _refuse_cycles(session: Session, waiting: list[Job]) -> None:
    """A waiting job has no id during the flush: nothing in that flush may need one."""
    _refuse_pointers(session, waiting)
    held_up = waiting
    while held_up:
        ids = {id(job) for job in held_up}
        still = [
            job
            for job in held_up
            if any(id(placeholder.target) in ids for placeholder in request_of(job).refs)
        ]
        if len(still) == len(held_up):
            raise EnqueueError(
                f"{still[0]!r} refers by ref() to a job that refers back to it: drop one of the two"
            )
        held_up = still


def _refuse_late_errors(waiting: list[Job]) -> None:
    """After the flush has written its rows an error would cost the whole transaction."""
    for job in waiting:
        if (key := request_of(job).key) and key.on_conflict == "raise":
            raise EnqueueError(
                f'{job!r} has on_conflict="raise", and its payload refers to a row of the same flush: flush that row first '
                "(session.flush()), so that the transaction can go on when the key turns out to be taken"
            )


def _refuse_pointers(session: Session, waiting: list[Job]) -> None:
    ids = {id(job) for job in waiting}
    for obj, relationship, there in pointers(session):
        if any(id(job) in ids for job in there):
            raise EnqueueError(
                f"{type(obj).__name__}.{relationship.key} needs the job's id, and the job's payload needs a row of the "
                "same flush, by ref(): flush that row first (session.flush()), then enqueue the job with its key"
            )
