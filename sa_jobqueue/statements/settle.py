"""The verbs by which a runner lets a job go: complete, retry, snooze, discard, release, abort.

Each is fenced by id and token and leaves its own token in `settled_token`: after a lost answer that tells whether it
landed. A row missing from the answer was left as it is. None may name the status in its guard.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, Uuid, any_, bindparam, case, cast, func, null, select, update
from sqlalchemy.dialects.postgresql import INTERVAL, JSONB

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.payloads import MAX_RESULT_BYTES, RESULT_TOO_LARGE
from sa_jobqueue.sql import keys, moment, number, status, word
from sa_jobqueue.statements.parts import (
    cut,
    exhausted,
    failure,
    held,
    key_released,
    lease_ended,
    one_more_returned,
    requested,
    rest,
)
from sa_jobqueue.states import CANCELLED_REASON, EXHAUSTED_REASON, JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import CTE, ColumnElement, FromClause, Update


def _settle(mine: CTE, values: Mapping[str, Any]) -> Update:
    return (
        update(jobs)
        .where(jobs.c.id == mine.c.id)
        .values(settled_token=jobs.c.lease_token, **values)
        .returning(mine.c.position, jobs.c.status)
    )


def _bounded(result: ColumnElement[Any]) -> ColumnElement[Any]:
    size = func.octet_length(result)
    marker = func.jsonb_build_object(
        word("dropped"), word(RESULT_TOO_LARGE), word("bytes"), size, type_=JSONB
    )
    return case((size > number(MAX_RESULT_BYTES), marker), else_=cast(result, JSONB))


def _later(delay: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.coalesce(moment() + delay, moment())


@cache
def complete() -> Update:
    """To done, unless the lease is past. Parameters: `ids`, `tokens`, `result_texts` (JSON or NULL).

    A result above MAX_RESULT_BYTES does not stop the completion; in its place stands
    `{"dropped": "result too large", "bytes": ...}`.
    """
    schema_in_use()
    mine = held(lambda job: job.c.lease_until > moment(), result_text=Text)
    return _settle(mine, completed(mine.c.result_text))


def completed(result_text: ColumnElement[Any]) -> dict[str, Any]:
    """What a completion writes, with its result as JSON text or NULL; the token that it is fenced by goes beside it."""
    return {
        **lease_ended(),
        "status": status(JobStatus.DONE),
        "result": _bounded(result_text),
        "reason": null(),
        "finished_at": moment(),
        "unique_key": key_released(),
    }


@cache
def retry() -> Update:
    """To ready after a delay, to dead when no attempt is left. Parameters: `ids`, `tokens`, `delays`, `error_texts`."""
    schema_in_use()
    mine = held(delay=INTERVAL, error_text=Text)
    return _settle(
        mine,
        {
            **rest(dead_when=exhausted(), ready_at=_later(mine.c.delay), reason=word(EXHAUSTED_REASON)),
            **failure(mine.c.error_text, Verb.RETRY),
        },
    )


@cache
def snooze() -> Update:
    """To ready after a delay, the attempt given back. Parameters: `ids`, `tokens`, `delays`."""
    schema_in_use()
    mine = held(delay=INTERVAL)
    return _settle(
        mine,
        {
            **rest(dead_when=None, ready_at=_later(mine.c.delay), reason=null()),
            "returned": one_more_returned(),
        },
    )


@cache
def release() -> Update:
    """Back to ready at its old place, the attempt given back: claimed, never begun. Parameters: `ids`, `tokens`."""
    schema_in_use()
    return _settle(
        held(),
        {
            **rest(dead_when=None, ready_at=None, reason=null()),
            "returned": one_more_returned(),
        },
    )


@cache
def discard() -> Update:
    """To dead with a reason. Parameters: `ids`, `tokens`, `reason_texts`, `error_texts`."""
    schema_in_use()
    mine = held(reason_text=Text, error_text=Text)
    reason = func.coalesce(cut(mine.c.reason_text), word("discarded"))
    asked = requested()
    return _settle(
        mine,
        {
            **lease_ended(),
            "status": case((asked, status(JobStatus.CANCELLED)), else_=status(JobStatus.DEAD)),
            "reason": case((asked, word(CANCELLED_REASON)), else_=reason),
            "finished_at": moment(),
            "unique_key": key_released(),
            **failure(mine.c.error_text, Verb.DISCARD),
        },
    )


@cache
def abort() -> Update:
    """To cancelled with a reason: on request, or claimed past `expires_at`. Parameters: `ids`, `tokens`, `reason_texts`."""
    schema_in_use()
    mine = held(reason_text=Text)
    return _settle(
        mine,
        {
            **lease_ended(),
            "status": status(JobStatus.CANCELLED),
            "reason": func.coalesce(cut(mine.c.reason_text), word(CANCELLED_REASON)),
            "finished_at": moment(),
            "unique_key": key_released(),
        },
    )


@cache
def release_claim() -> Update:
    """Gives back all that one claim took, by its `token` alone: its answer was lost, the ids are unknown.

    The attempts are given back only while fewer than `max_attempts` have been: a job whose answer always breaks the
    connection must come to rest in dead as well.
    """
    schema_in_use()
    return _release_claim()


@cache
def release_listed() -> Update:
    """The same for those among `ids` alone."""
    schema_in_use()
    return _release_claim(lambda job: job.c.id == any_(keys("ids", BigInteger)))


def _release_claim(*guards: Callable[[FromClause], ColumnElement[bool]]) -> Update:
    token = cast(bindparam("token", type_=Uuid), Uuid)
    job = jobs.alias("job")
    # The one guard that names the status: without ids the partial index of running jobs is the way in.
    mine = (
        select(job.c.id)
        .where(
            job.c.status == status(JobStatus.RUNNING),
            job.c.lease_token == token,
            *(guard(job) for guard in guards),
        )
        .order_by(job.c.id)
        .with_for_update(key_share=True, skip_locked=True)
        .cte("held")
        .prefix_with("MATERIALIZED")
    )
    returned = case((jobs.c.returned < jobs.c.max_attempts, one_more_returned()), else_=jobs.c.returned)
    return (
        update(jobs)
        .where(jobs.c.id == mine.c.id)
        .values(
            settled_token=jobs.c.lease_token,
            returned=returned,
            **rest(dead_when=exhausted(returned), ready_at=None, reason=word(EXHAUSTED_REASON)),
        )
        .returning(jobs.c.id, jobs.c.status)
    )


#: Every settling verb, its statement, and the fields of a Settlement that it takes (parameter name, field).
SETTLING: Mapping[Verb, tuple[Callable[[], Update], tuple[tuple[str, str], ...]]] = {
    Verb.COMPLETE: (complete, (("result_texts", "result"),)),
    Verb.RETRY: (retry, (("delays", "delay"), ("error_texts", "error"))),
    Verb.SNOOZE: (snooze, (("delays", "delay"),)),
    Verb.DISCARD: (discard, (("reason_texts", "reason"), ("error_texts", "error"))),
    Verb.RELEASE: (release, ()),
    Verb.ABORT: (abort, (("reason_texts", "reason"),)),
}
