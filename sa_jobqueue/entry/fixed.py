"""A Job is not changed through the ORM: the assignment is refused, and names the verb that does it.

A write by the ORM carries no lease token: it would overwrite what a runner has just written. So a Job that `enqueue()`
made, or that has a row, takes no assignment, no `del`, no `flag_modified()`. The listeners sit on the attributes of
Job, so that nobody else's objects pay for them. `session.execute(update(Job))` is outside: it says what it does, and a
listener for it would cost every statement of every session some 5 microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy import Connection, event, inspect
from sqlalchemy.orm import InstanceState, Mapper

from sa_jobqueue.entry.request import COLUMNS, GIVEN
from sa_jobqueue.errors import EnqueueError, UnfencedWriteError
from sa_jobqueue.models import Job

if TYPE_CHECKING:
    from sqlalchemy.orm.attributes import AttributeEventToken

_ARGUMENTS = {name: name for name in (*GIVEN, "key_scope")} | {"run_at": "run_at or delay"}
_REDRIVEN = "a dead or cancelled job is redriven: sa_jobqueue.admin.redrive(session, [id])"
_SETTLED = f"a running job is settled by what its handler returns or raises, {_REDRIVEN}"
_RESCHEDULED = "a ready job is rescheduled: sa_jobqueue.admin.reschedule(session, [id], ...)"
_CANCELLED = "one that must not run is cancelled: sa_jobqueue.admin.cancel(session, [id])"
_VERBS = {
    "run_at": _RESCHEDULED,
    "priority": _RESCHEDULED,
    "status": f"{_SETTLED}, {_CANCELLED}",
    "cancel_requested_at": _CANCELLED,
    "attempts": f"{_REDRIVEN}, which gives it a new budget",
    "returned": f"{_REDRIVEN}, which gives it a new budget",
    "max_attempts": f"{_REDRIVEN}, which gives it a new budget",
} | dict.fromkeys(("reason", "finished_at", "result", "progress", "last_error", "errors"), _SETTLED)
_ANOTHER = "what a stored job asks for stays: enqueue another"


def refuse_change(job: Job | None, attribute: str) -> NoReturn:
    """Raise UnfencedWriteError for a change of this attribute."""
    if (identity := vars(job).get("id") if job else None) is None:
        name = _ARGUMENTS.get(attribute)
        mend = f"pass {name} to enqueue()" if name else "the queue alone writes it"
        raise UnfencedWriteError(
            f"{job!r}.{attribute} can't be assigned: a job from enqueue() is fixed; {mend}"
        )
    raise UnfencedWriteError(
        f"Job {identity}: {attribute} can't be changed through the ORM, past the lease that guards it: "
        f"{_VERBS.get(attribute, _ANOTHER)}. (Where session.merge() brought the change: read the job with "
        "session.get(Job, id) instead, and keep 'merge' out of the cascade of relationships to Job.)"
    )


def _guarded(state: InstanceState[Job]) -> bool:
    return state.key is not None or "_request" in state.dict


def _on_set(state: InstanceState[Job], value: Any, old: Any, initiator: AttributeEventToken) -> None:
    # merge() assigns every attribute; of an unchanged job it changes none.
    if _guarded(state) and not (old is value or (initiator.key in state.dict and old == value)):
        refuse_change(state.obj(), initiator.key)


def _on_remove(state: InstanceState[Job], _: Any, initiator: AttributeEventToken) -> None:
    if _guarded(state):
        refuse_change(state.obj(), initiator.key)


def _on_modified(state: InstanceState[Job], initiator: AttributeEventToken) -> None:
    if _guarded(state):
        refuse_change(state.obj(), initiator.key)


for _name in COLUMNS:
    _attribute = getattr(Job, _name)
    event.listen(_attribute, "set", _on_set, raw=True)
    event.listen(_attribute, "remove", _on_remove, raw=True)
    event.listen(_attribute, "modified", _on_modified, raw=True)


@event.listens_for(Job, "before_insert")
def _refuse_stock_insert(_mapper: Mapper[Any], _connection: Connection, job: Job) -> None:
    """The unit of work meets a Job only when a `before_flush` listener added it after ours had run."""
    raise EnqueueError(
        f"{job!r} was added by a before_flush listener, after the job queue's own: call enqueue_many(session, [job]) "
        "there instead of session.add(job)"
    )


@event.listens_for(Job, "before_update")
def _refuse_update(_mapper: Mapper[Any], _connection: Connection, job: Job) -> None:
    """The last net, for a change that came past the attributes' events. A collection of another mapper may change."""
    state = inspect(job)
    for name in COLUMNS:
        if state.attrs[name].history.has_changes():
            refuse_change(job, name)
