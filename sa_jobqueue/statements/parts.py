"""Pieces that several statements are made of: the batch that is held, where a job comes to rest, the bounds of texts.

Pure constructs; which verb means what stands in the verb's own module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Uuid,
    any_,
    case,
    column,
    func,
    null,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from sa_jobqueue.models import jobs
from sa_jobqueue.sql import array, keys, moment, number, status, word
from sa_jobqueue.states import CANCELLED_REASON, JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import CTE, ColumnElement, FromClause, Select, SelectBase, Update
    from sqlalchemy.types import TypeEngine

    Values = dict[str, Any]

#: The last so many failures are kept in `errors`.
KEPT_ERRORS = 10
#: Texts (error, reason, progress) are cut to this many bytes.
MAX_TEXT_BYTES = 4096

_UTF8_LONGEST = 4
_LARGEST_INTEGER = 2**31 - 1
_ISO_UTC = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'


def held(
    guard: Callable[[FromClause], ColumnElement[bool]] | None = None, **given: type[TypeEngine[Any]]
) -> CTE:
    """The rows of a batch that carry the token they are asked for, locked in id order; rows locked elsewhere are left out.

    Parameters: `ids`, `tokens`, and for each of `given` an array of its name plus "s". `position` counts from 1 in
    these arrays. NO KEY UPDATE: an application's foreign key on a job holds KEY SHARE and stops nobody here.

    Each row is one look-up by the primary key, whatever the planner believes: see the traps in `statements`.
    """
    columns: dict[str, type[TypeEngine[Any]]] = {"id": BigInteger, "token": Uuid, **given}
    arrays = [keys("ids", BigInteger), keys("tokens", Uuid)]
    arrays += [array(f"{name}s", kind) for name, kind in given.items()]
    asked = (
        func.unnest(*map(unmeasured, arrays))
        .table_valued(*(column(name, kind) for name, kind in columns.items()), with_ordinality="position")
        .render_derived(name="asked")
    )
    batch = select(asked).order_by(asked.c.id).subquery("batch")
    job = jobs.alias("job")
    guards = [job.c.id == batch.c.id, job.c.lease_token == batch.c.token]
    if guard is not None:
        guards.append(guard(job))
    mine = (
        select(job.c.id)
        .where(*guards)
        .with_for_update(key_share=True, skip_locked=True)
        .correlate(batch)
        .lateral("mine")
    )
    return (
        select(mine.c.id, batch.c.position, *(batch.c[name] for name in given))
        .select_from(batch.join(mine, true()))
        .cte("held")
        .prefix_with("MATERIALIZED")
    )


def unmeasured(array: ColumnElement[Any]) -> ColumnElement[Any]:
    """An array parameter whose length the planner does not see: it plans for ten, every time the same."""
    return select(array).scalar_subquery()


def named(*more: Callable[[FromClause], ColumnElement[Any]]) -> CTE:
    """The rows of `ids`, locked in id order, with their status, for the verbs of people.

    A row that is locked elsewhere is waited for: what a person asks for is not silently left out. The status is the one
    that the wait ended in.
    """
    job = jobs.alias("job")
    return (
        select(job.c.id, job.c.status, *(column(job) for column in more))
        .where(job.c.id == any_(keys("ids", BigInteger)))
        .order_by(job.c.id)
        .with_for_update(key_share=True, of=job)
        .cte("named")
        .prefix_with("MATERIALIZED")
    )


def still_due(job: FromClause) -> tuple[ColumnElement[bool], ...]:
    """Whether a row whose id is given is ready and due.

    Ready is said without its name: that would bring the large partial index in, where the ids are few.
    """
    return job.c.lease_token.is_(None), job.c.finished_at.is_(None), job.c.run_at <= moment()


def among(ids: SelectBase) -> ColumnElement[bool]:
    """The row's id is one of these, evaluated once and looked up by the primary key: see the traps in `statements`."""
    return jobs.c.id == any_(func.ARRAY(ids.scalar_subquery(), type_=ARRAY(BigInteger, dimensions=1)))


def outcomes(rows: CTE, changes: Update, *more: ColumnElement[Any]) -> Select[Any]:
    """For every row of `named()` its status before, and the one after where `changes` touched it, else NULL."""
    changed = changes.where(jobs.c.id == rows.c.id).returning(jobs.c.id, jobs.c.status).cte("changed")
    return select(
        rows.c.id, rows.c.status.label("before"), changed.c.status.label("after"), *more
    ).select_from(rows.outerjoin(changed, changed.c.id == rows.c.id))


def lease_ended() -> Values:
    """What every statement that ends a lease sets. `leased_by` goes with it: a job at rest belongs to nobody."""
    return {"lease_token": null(), "lease_until": null(), "leased_by": null(), "updated_at": moment()}


def requested() -> ColumnElement[bool]:
    """An operator has asked for the cancellation of the running job."""
    return jobs.c.cancel_requested_at.is_not(None)


def exhausted(returned: ColumnElement[int] | None = None) -> ColumnElement[bool]:
    """Every attempt that counts has been used, this one included."""
    return jobs.c.attempts - (jobs.c.returned if returned is None else returned) >= jobs.c.max_attempts


def one_more_start() -> ColumnElement[int]:
    """`attempts` raised by one, within what the column holds."""
    return func.least(jobs.c.attempts, number(_LARGEST_INTEGER - 1)) + number(1)


def one_more_returned() -> ColumnElement[int]:
    """`returned` raised by one, never above `attempts`, whatever other SQL wrote there."""
    return func.least(jobs.c.returned, jobs.c.attempts - number(1)) + number(1)


def key_released() -> ColumnElement[Any]:
    """The unique key once the job is finished: scope `unfinished` lets it go, scope `row` keeps it."""
    return case((jobs.c.key_scope == word("unfinished"), null()), else_=jobs.c.unique_key)


def rest(
    *, dead_when: ColumnElement[bool] | None, ready_at: ColumnElement[Any] | None, reason: ColumnElement[Any]
) -> Values:
    """Where a job comes to rest that was not completed: cancelled when requested, else dead, else ready again.

    `dead_when` None means never. `ready_at` None leaves run_at. `reason` is that of the dead.
    """
    cancelled, dead = requested(), dead_when

    def choose(*, cancel: Any, die: Any, ready: Any) -> ColumnElement[Any]:
        branches = [(cancelled, cancel)] if dead is None else [(cancelled, cancel), (dead, die)]
        return case(*branches, else_=ready)

    values = {
        **lease_ended(),
        "status": choose(
            cancel=status(JobStatus.CANCELLED), die=status(JobStatus.DEAD), ready=status(JobStatus.READY)
        ),
        "reason": choose(cancel=word(CANCELLED_REASON), die=reason, ready=null()),
        "finished_at": choose(cancel=moment(), die=moment(), ready=null()),
        "unique_key": choose(cancel=key_released(), die=key_released(), ready=jobs.c.unique_key),
    }
    if ready_at is not None:
        values["run_at"] = choose(cancel=jobs.c.run_at, die=jobs.c.run_at, ready=ready_at)
    return values


def cut(text: ColumnElement[Any]) -> ColumnElement[Any]:
    """A text within MAX_TEXT_BYTES, never cut inside a character: short enough is kept, ASCII cut to the byte."""
    start = func.left(text, number(MAX_TEXT_BYTES))
    return case(
        (func.octet_length(start) <= number(MAX_TEXT_BYTES), start),
        else_=func.left(text, number(MAX_TEXT_BYTES // _UTF8_LONGEST)),
    )


def now_in_utc() -> ColumnElement[Any]:
    """The time as text in UTC, for JSON: as timestamptz it would be written in the time zone of the session."""
    return func.to_char(func.timezone(word("UTC"), moment()), word(_ISO_UTC))


def failure(error: ColumnElement[Any], verb: Verb) -> Values:
    """`last_error` and one more entry of `errors`, the oldest of KEPT_ERRORS dropped; no error leaves both alone.

    The entry names the verb, so that the loss of a runner is told apart from a failure without reading texts.
    """
    # What other SQL put there may be no list: a list begins then, for nothing that is in a row may stop its write.
    kept = case(
        (func.jsonb_typeof(jobs.c.errors) != word("array"), func.jsonb_build_array(type_=JSONB)),
        (
            func.jsonb_array_length(jobs.c.errors) >= number(KEPT_ERRORS),
            jobs.c.errors.op("-", return_type=JSONB())(number(0)),
        ),
        else_=jobs.c.errors,
    )
    entry = func.jsonb_build_object(
        *(word("attempt"), jobs.c.attempts - jobs.c.returned),
        *(word("at"), now_in_utc()),
        *(word("verb"), word(verb)),
        *(word("error"), cut(error)),
        type_=JSONB,
    )
    return {
        "last_error": func.coalesce(cut(error), jobs.c.last_error),
        "errors": case(
            (error.is_(None), jobs.c.errors),
            else_=kept.op("||", return_type=JSONB())(func.jsonb_build_array(entry, type_=JSONB)),
        ),
    }
