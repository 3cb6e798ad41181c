"""One rule left out each: of a statement as texts, what stands in it and what instead; of what is made of answers as code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Engine, event
from sqlalchemy.exc import ProgrammingError

from sa_jobqueue.queries import expired, held
from sa_jobqueue.records import Landing, Settled
from sa_jobqueue.statements import (
    cancel,
    claim,
    fence,
    insert,
    prune,
    redrive,
    renew,
    report,
    reschedule,
    rescue,
    settle,
)
from sa_jobqueue.states import TERMINAL, TRANSITIONS, JobStatus, Transition, Verb
from sa_jobqueue.store import reconcile, settling

Statement = Callable[[], Any]


class Changed(NamedTuple):
    """In the texts of these statements one thing gives way to another."""

    statements: tuple[Statement, ...]
    old: str
    new: str

    @contextmanager
    def in_place(self, engine: Engine) -> Iterator[None]:
        """For the time of the block; it must be a statement that works."""
        sent = [statement() for statement in self.statements]

        def change(_c: Any, _u: Any, text: str, parameters: Any, context: Any, _m: bool) -> tuple[str, Any]:
            if any(context.compiled.statement is statement for statement in sent if context.compiled):
                text = re.sub(r"\s+", " ", text)
                if (
                    self.old not in text
                ):  # no AssertionError, which would be taken for a mutant that was found
                    raise LookupError(f"no {self.old!r} in {text}")
                text = text.replace(self.old, self.new)
            return text, parameters

        def watch(context: Any) -> None:
            if isinstance(context.sqlalchemy_exception, ProgrammingError):
                raise SyntaxError(str(context.sqlalchemy_exception))

        event.listen(engine, "before_cursor_execute", change, retval=True)
        event.listen(engine, "handle_error", watch)
        try:
            yield
        finally:
            event.remove(engine, "before_cursor_execute", change)
            event.remove(engine, "handle_error", watch)


SETTLING = {
    "complete": settle.complete,
    "retry": settle.retry,
    "snooze": settle.snooze,
    "discard": settle.discard,
    "release": settle.release,
    "abort": settle.abort,
}
BATCHES = {**SETTLING, "renew": renew.renew, "report": report.report, "rescue": rescue.rescue}
WAITS_FOR_NOBODY = {
    **{verb: BATCHES[verb] for verb in ("complete", "renew", "report", "rescue")},
    "claim": claim.claim,
}
GOES_TO_CANCELLED = ("retry", "snooze", "discard", "release", "rescue")
LETS_THE_KEY_GO = {
    **{verb: BATCHES[verb] for verb in ("complete", "retry", "rescue")},
    "cancel": cancel.cancel,
    "the fence": fence.fence,
}
INSERTS: tuple[Statement, ...] = tuple(
    one
    for shown in (True, False)
    for one in (
        partial(insert.insert_jobs, shown=shown),
        partial(insert.insert_job, keyed=True, shown=shown),
        partial(insert.insert_job, keyed=False, shown=shown),
    )
)
PRUNES = tuple(partial(prune.prune, status) for status in TERMINAL)

_OF_TOKEN = "job.lease_token = CAST(%(token)s::UUID AS UUID)"
_STAMP = "settled_token=jobqueue_jobs.lease_token"
_REQUESTED = "jobqueue_jobs.cancel_requested_at IS NOT NULL"
_EXHAUSTED = "jobqueue_jobs.attempts - jobqueue_jobs.returned >= jobqueue_jobs.max_attempts"
_GIVEN_BACK = "returned=(least(jobqueue_jobs.returned, jobqueue_jobs.attempts - 1) + 1)"
_MARGIN = " - CAST(%(margin)s::INTERVAL AS INTERVAL)"
_KEY_GOES = "CASE WHEN (jobqueue_jobs.key_scope = 'unfinished') THEN NULL"


def _one(statement: Statement, old: str, new: str) -> Changed:
    return Changed((statement,), old, new)


STATEMENTS: dict[str, Changed] = {
    **{
        f"{verb} ignores the token": _one(
            statement, "job.lease_token = batch.token", "job.lease_token IS NOT NULL"
        )
        for verb, statement in BATCHES.items()
    },
    **{
        f"{verb} waits for a lock": _one(statement, "UPDATE SKIP LOCKED", "UPDATE")
        for verb, statement in WAITS_FOR_NOBODY.items()
    },
    **{
        f"{verb} leaves no trace of its token": _one(
            statement, _STAMP, "settled_token=jobqueue_jobs.settled_token"
        )
        for verb, statement in {
            **SETTLING,
            "the fence": fence.fence,
            "the release of a claim": settle.release_claim,
        }.items()
    },
    **{
        f"{verb} ignores a request to cancel": _one(BATCHES[verb], _REQUESTED, "false")
        for verb in GOES_TO_CANCELLED
    },
    **{
        f"{verb} keeps a key of scope unfinished": _one(
            statement, _KEY_GOES, _KEY_GOES.replace("NULL", "jobqueue_jobs.unique_key")
        )
        for verb, statement in LETS_THE_KEY_GO.items()
    },
    # claim
    "claim takes jobs of the future": _one(claim.claim, " AND job.run_at <= statement_timestamp()", ""),
    "claim takes every kind": _one(claim.claim, "job.kind = ANY (CAST(%(kinds)s::TEXT[] AS TEXT[]))", "true"),
    "claim knows no priority": _one(claim.claim, "generate_series(0, 9)", "generate_series(9, 0, -1)"),
    "claim knows no order of due times": _one(
        claim.claim, "ORDER BY job.run_at, job.id", "ORDER BY job.id DESC"
    ),
    "claim knows no quota": _one(claim.claim, "LIMIT wanted.quota", "LIMIT 9"),
    "claim takes running jobs": _one(
        claim.claim, "job.status = 'ready'", "job.status IN ('ready', 'running')"
    ),
    "claim stands back for a foreign key": _one(claim.claim, "FOR NO KEY UPDATE", "FOR UPDATE"),
    "claim does not count": _one(
        claim.claim, "attempts=(least(jobqueue_jobs.attempts, 2147483646) + 1), ", ""
    ),
    "claim begins its lease with the transaction": _one(
        claim.claim, "lease_until=(statement_timestamp()", "lease_until=(now()"
    ),
    # renew
    "renew shortens a lease": _one(renew.renew, "greatest(jobqueue_jobs.lease_until, ", "greatest(NULL, "),
    "renew takes an expired lease for lost": _one(
        renew.renew, "= batch.token", "= batch.token AND job.lease_until > statement_timestamp()"
    ),
    # completions
    "complete ignores the lease": _one(settle.complete, " AND job.lease_until > statement_timestamp()", ""),
    "complete lets a lease pass that ends now": _one(settle.complete, "lease_until > ", "lease_until >= "),
    "complete reads the clock at the start of the transaction": _one(
        settle.complete, "lease_until > statement_timestamp()", "lease_until > now()"
    ),
    "complete lets every key go": _one(settle.complete, "ELSE jobqueue_jobs.unique_key END", "ELSE NULL END"),
    "the fence ignores the token": _one(fence.fence, f" AND {_OF_TOKEN}", " AND job.lease_token IS NOT NULL"),
    "the fence ignores the lease": _one(fence.fence, " AND mine.lease_until > clock_timestamp()", ""),
    "the fence reads the clock at the start of the transaction": _one(
        fence.fence, "clock_timestamp()", "now()"
    ),
    # attempts
    "retry knows no last attempt": _one(settle.retry, _EXHAUSTED, "false"),
    "retry counts what was given back": _one(
        settle.retry, "attempts - jobqueue_jobs.returned >=", "attempts >="
    ),
    "rescue knows no last attempt": _one(rescue.rescue, _EXHAUSTED, "false"),
    "snooze counts": _one(settle.snooze, _GIVEN_BACK, "returned=jobqueue_jobs.returned"),
    "release counts": _one(settle.release, _GIVEN_BACK, "returned=jobqueue_jobs.returned"),
    "lost claims are given back for ever": _one(
        settle.release_claim,
        "CASE WHEN (jobqueue_jobs.returned < jobqueue_jobs.max_attempts) THEN",
        "CASE WHEN true THEN",
    ),
    "the release of a claim ignores the token": _one(settle.release_claim, _OF_TOKEN, "true"),
    # later
    "retry comes back at once": _one(
        settle.retry, "statement_timestamp() + held.delay", "statement_timestamp()"
    ),
    "release loses its place": _one(
        settle.release, "lease_token=NULL", "run_at=statement_timestamp(), lease_token=NULL"
    ),
    # rescue
    "rescue ignores the lease": _one(
        rescue.rescue, f" AND job.lease_until < statement_timestamp(){_MARGIN}", ""
    ),
    "rescue ignores the margin": _one(rescue.rescue, _MARGIN, ""),
    "rescue leaves a trace of the token": _one(
        rescue.rescue, "lease_token=NULL", f"lease_token=NULL, {_STAMP}"
    ),
    "rescue comes back at once": _one(
        rescue.rescue, "statement_timestamp() + held.delay", "statement_timestamp()"
    ),
    "leases are taken for expired within the margin": _one(expired.expired, _MARGIN, ""),
    # people
    "cancel ends a running job": _one(cancel.cancel, "jobqueue_jobs.status = 'ready'", "true"),
    "cancel ends a dead job": _one(cancel.cancel, "named.status IN (", "named.status IN ('dead', "),
    "cancel clears a request": _one(
        cancel.cancel, "coalesce(jobqueue_jobs.cancel_requested_at, statement_timestamp())", "NULL"
    ),
    "a second request to cancel moves the first": _one(
        cancel.cancel,
        "coalesce(jobqueue_jobs.cancel_requested_at, statement_timestamp())",
        "statement_timestamp()",
    ),
    "redrive keeps the request to cancel": _one(
        redrive.redrive, "cancel_requested_at=NULL", "cancel_requested_at=jobqueue_jobs.cancel_requested_at"
    ),
    "redrive keeps the budget": _one(
        redrive.redrive, "returned=jobqueue_jobs.attempts", "returned=jobqueue_jobs.returned"
    ),
    "redrive keeps a past expiry": _one(
        redrive.redrive, "jobqueue_jobs.expires_at <= statement_timestamp()", "false"
    ),
    "redrive forgets an expiry to come": _one(
        redrive.redrive, "jobqueue_jobs.expires_at <= statement_timestamp()", "true"
    ),
    "redrive forgets who settled": _one(
        redrive.redrive, "lease_token=NULL", "lease_token=NULL, settled_token=NULL"
    ),
    "redrive leads out of done": _one(redrive.redrive, "named.status IN (", "named.status IN ('done', "),
    "redrive takes no key again": _one(redrive.redrive, " AND NOT named.takes_key", ""),
    "redrive ignores who holds the key": Changed(
        (redrive.redrive_keyed,),
        "unique_key=CASE WHEN (jobqueue_jobs.key_scope = 'unfinished') THEN jobqueue_jobs.idempotency_key",
        "unique_key=CASE WHEN (jobqueue_jobs.key_scope = 'unfinished') THEN NULL",
    ),
    "reschedule moves a running job": _one(
        reschedule.reschedule, "named.status = 'ready'", "named.status IN ('ready', 'running')"
    ),
    "reschedule moves a job past its expiry": _one(
        reschedule.reschedule,
        "named.status = 'ready' AND coalesce(named.expires_at >",
        "named.status = 'ready' AND coalesce(NULL >",
    ),
    # prune
    "prune deletes jobs that wait": Changed(
        PRUNES[:1], "job.status = 'done' AND job.finished_at < ", "job.status = 'ready' AND job.created_at < "
    ),
    "prune ignores the age": Changed(PRUNES, " - CAST(%(age)s::INTERVAL AS INTERVAL)", ""),
    "prune begins with the newest": Changed(
        PRUNES, "ORDER BY job.finished_at", "ORDER BY job.finished_at DESC"
    ),
    # the rest
    "a delayed job is due at once": Changed(INSERTS, "now() + ", "now() + 0 * "),
    "who owns a job is not looked for": _one(held.owners, "jobqueue_jobs.settled_token", "NULL"),
}


def _first_tries(*arguments: Any, again: bool = False, **named: Any) -> Any:
    return _MISSES(*arguments, **named)


def _no_fates(*arguments: Any, xids: Any = None, **named: Any) -> Any:
    return _MISSES(*arguments, **named)


def _whoever_settled(key: Any, owner: Any, verb: Verb, *, again: bool) -> Any:
    if owner is not None and owner.settled_token is not None:
        owner = owner._replace(settled_token=key[1])
    return _JUDGE(key, owner, verb, again=again)


def _whatever_landed(key: Any, owner: Any, verb: Verb, *, again: bool) -> Any:
    if owner is not None and again and owner.settled_token == key[1] and verb is Verb.COMPLETE:
        return Settled(key[0], key[1], Landing.LANDED, JobStatus.DONE)
    return _JUDGE(key, owner, verb, again=again)


def _taken_for(word: Landing, other: Landing) -> Callable[..., Any]:
    def judge(key: Any, owner: Any, verb: Verb, *, again: bool) -> Any:
        answer = _JUDGE(key, owner, verb, again=again)
        return answer._replace(landing=other) if answer.landing is word else answer

    return judge


def _with(verb: Verb, *moves: tuple[JobStatus, JobStatus]) -> dict[Verb, Transition]:
    return {**TRANSITIONS, verb: replace(TRANSITIONS[verb], moves=moves)}


_MISSES, _JUDGE = reconcile.misses, reconcile._judge
_READY, _RUNNING, _DONE, _DEAD, _CANCELLED = JobStatus

#: Where a name stands, and what it means instead.
CODE: dict[str, tuple[object, str, object]] = {
    "a lost answer is not reconciled": (settling, "misses", _first_tries),
    "the fate of a transaction is not asked": (settling, "misses", _no_fates),
    "whoever settled last counts as the same": (reconcile, "_judge", _whoever_settled),
    "a completion counts as landed whatever has": (reconcile, "_judge", _whatever_landed),
    "an expired lease is final": (reconcile, "_judge", _taken_for(Landing.EXPIRED, Landing.LOST)),
    "a locked row is taken for lost": (reconcile, "_judge", _taken_for(Landing.BUSY, Landing.LOST)),
    "a row that is gone is taken for lost": (reconcile, "_judge", _taken_for(Landing.GONE, Landing.LOST)),
    "the table lets a dead job be cancelled": (
        cancel,
        "TRANSITIONS",
        _with(Verb.CANCEL, (_READY, _CANCELLED), (_RUNNING, _RUNNING), (_DEAD, _CANCELLED)),
    ),
    "the table does not let a running job be cancelled": (
        cancel,
        "TRANSITIONS",
        _with(Verb.CANCEL, (_READY, _CANCELLED)),
    ),
    "the table knows no retry that ends a job": (
        reconcile,
        "TRANSITIONS",
        _with(Verb.RETRY, (_RUNNING, _READY)),
    ),
}
