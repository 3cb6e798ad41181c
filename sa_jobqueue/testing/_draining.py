"""The loop of a drain: claim one job by the runner's own statement, run it, settle it, and so on.

Everything goes over the connection of the test, each statement within a savepoint.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue.completion import Completions
from sa_jobqueue.context import context_of
from sa_jobqueue.durations import format_duration
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.queries.due import due_queues
from sa_jobqueue.records import Landing, Settled, Settlement
from sa_jobqueue.statements.bring_forward import bring_forward
from sa_jobqueue.states import EXPIRED_REASON, JobStatus, Verb
from sa_jobqueue.store.callers_connection import CallersConnection
from sa_jobqueue.store.sessions import connection_of
from sa_jobqueue.store.store import Store
from sa_jobqueue.store.trouble import sqlstate_of
from sa_jobqueue.testing._attempts import Attempted, EventLoop, Performed, attempt
from sa_jobqueue.testing._completing import Holder, SameConnection
from sa_jobqueue.testing._drained import Drained, DrainError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from sa_jobqueue.completion.owner import Completion
    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import ClaimedJob, Progress
    from sa_jobqueue.registry import Registry

#: Nobody renews it, and a debugger may stop the handler for long.
_LEASE = timedelta(days=1)
_NAME = "drain"
_ABORTED = "25P02"
_RECIPE = (
    "bind the sessions of handlers to the test's connection with join_transaction_mode='create_savepoint', and don't "
    "let them be the session that is drained (see the example of sa_jobqueue.testing)"
)


class Draining:
    """One drain of one target; `run` it once."""

    def __init__(
        self,
        target: Session | Connection,
        registry: Registry,
        queues: list[str] | None,
        *,
        loop: EventLoop,
        with_delayed: bool,
        provide: Mapping[Any, Any],
    ) -> None:
        self._target = target
        self._registry = registry
        self._wanted = {"kinds": list(registry.kinds), "queues": queues}
        self._loop = loop
        self._with_delayed = with_delayed
        self._provide = provide
        self._runs: list[Performed] = []
        #: Due times of jobs that were brought forward, and whether they would have expired by then.
        self._brought: dict[int, tuple[datetime, bool]] = {}
        #: Jobs that are due and that nobody can claim, with the database's reason.
        self._refused: dict[int, str] = {}
        #: How far the drain has gone into the future.
        self._ahead = timedelta(0)

    def run(self, *, limit: int, raise_errors: bool) -> Drained:
        if isinstance(self._target, Session):
            self._target.flush()
        try:
            while job := self._next(limit):
                error = self._perform(job)
                if error is not None and raise_errors:
                    raise error
        finally:
            if isinstance(self._target, Session) and self._target.expire_on_commit:
                _expire(self._target)
        return self._drained()

    def _store(self) -> Store:
        # Asked for each time: a session that a handler has committed has another connection, or another savepoint.
        return Store(connection_of(self._target), name=_NAME, on_refused=self._note_refusal)

    def _note_refusal(self, job_id: int, verb: Verb, fault: str) -> None:
        if verb is Verb.CLAIM:
            self._refused[job_id] = fault

    def _rows(self, statement: Any) -> Any:
        return CallersConnection(connection_of(self._target)).rows(statement, self._wanted)

    def _next(self, limit: int) -> ClaimedJob | None:
        if not self._wanted["kinds"]:
            return None
        while True:
            queues = self._rows(due_queues())
            if queues and len(self._runs) >= limit:
                raise self._endless(limit)
            for (queue,) in queues:
                claimed = self._store().claim(
                    token=uuid4(), quotas={queue: 1}, kinds=self._registry.kinds, lease=_LEASE
                )
                if claimed:
                    self._refused.pop(claimed[0].id, None)
                    return self._as_of_its_time(claimed[0])
            if not self._with_delayed or not self._travel():
                if self._refused:
                    raise self._unclaimable()
                return None

    def _travel(self) -> bool:
        """On to the due time of the next job, if there is one."""
        for job_id, run_at, ahead, expired in self._rows(bring_forward()):
            self._ahead = max(self._ahead, ahead)
            self._brought[job_id] = (run_at, expired)
            return True
        return False

    def _as_of_its_time(self, job: ClaimedJob) -> ClaimedJob:
        if (brought := self._brought.pop(job.id, None)) is None:
            return job
        run_at, expired = brought
        return job._replace(run_at=run_at, expired=job.expired or expired)

    def _perform(self, job: ClaimedJob) -> BaseException | None:
        """Run and settle one job; the error, if it failed."""
        handler = self._registry.find(job.kind)
        if handler is None:
            raise LookupError(f"job {job.id} was claimed for kind {job.kind!r}, which has no handler")
        if job.expired:
            settlement = Settlement(job.id, job.token, Verb.ABORT, reason=EXPIRED_REASON)
            attempted, progress = Attempted(settlement, None, None, None), None
        else:
            self._check_version(job, handler)
            try:
                self._loop.check(handler)
            except RuntimeError:
                self._store().settle([Settlement(job.id, job.token, Verb.RELEASE)])
                raise
            attempted, progress = self._attempt(job, handler)
        settled = self._settle(job, attempted, progress)
        if settled.status is None:
            raise self._lost(job, settled) from attempted.error
        performed = attempted.performed(job, settled.status, fault=settled.fault)
        self._runs.append(performed)
        if attempted.error is not None:
            attempted.error.add_note(_note(job, performed))
            if isinstance(attempted.error, LeaseLostError):
                # Nobody takes a job away from a drain: the session of a completion doesn't see it.
                attempted.error.add_note(f"{_named(job)} is in the test's own transaction: {_RECIPE}")
        return attempted.error

    def _check_version(self, job: ClaimedJob, handler: Handler[..., ..., Any]) -> None:
        """A runner puts a job of newer code back until there is such a runner, and nobody in a test could wait for it."""
        if job.payload_version <= handler.payload_version:
            return
        self._store().settle([Settlement(job.id, job.token, Verb.RELEASE)])
        raise DrainError(
            f"{_named(job)}: its payload has version {job.payload_version}, and the handler takes up to "
            f"{handler.payload_version}: a runner would put it back for newer code",
            self._drained(),
        )

    def _attempt(self, job: ClaimedJob, handler: Handler[..., ..., Any]) -> tuple[Attempted, Progress | None]:
        holder = Holder()
        completions = Completions(holder, SameConnection(connection_of(self._target)), lease=_LEASE)
        holder.context = context = context_of(job, runner_id=_NAME, completer=completions.of(job))

        def look_back() -> Completion | None:
            return holder.look_back(connection_of(self._target))

        attempted = attempt(job, handler, context, self._loop, look_back, self._provide)
        return attempted, context.latest_progress

    def _settle(self, job: ClaimedJob, attempted: Attempted, progress: Progress | None) -> Settled:
        settlement = attempted.settlement
        if attempted.completed:
            return Settled(job.id, job.token, Landing.LANDED, JobStatus.DONE)
        if settlement.delay is not None:
            # From the time that the drain pretends, or a job that is ahead of another one would stay so for ever.
            settlement = settlement._replace(delay=settlement.delay + self._ahead)
        try:
            if progress is not None:
                self._store().report([((job.id, job.token), progress)])
            (settled,) = self._store().settle([settlement])
        except DBAPIError as error:
            if sqlstate_of(error) != _ABORTED:
                raise
            raise DrainError(
                f"{_named(job)}: its handler has left the test's transaction aborted, after a statement that failed "
                f"outside of a savepoint: {_RECIPE}",
                self._drained(),
            ) from (attempted.error or error)
        return settled

    def _lost(self, job: ClaimedJob, settled: Settled) -> DrainError:
        if settled.landing is Landing.BUSY:
            cause = f"the database refuses its outcome ({settled.fault or 'its row is locked'})"
        else:
            cause = f"its handler has rolled back the transaction in which the job was claimed: {_RECIPE}"
        return DrainError(f"{_named(job)}: {cause}", self._drained())

    def _endless(self, limit: int) -> DrainError:
        kinds = Counter((run.kind, run.verb) for run in self._runs[-limit:])
        ends = ", ".join(f"{kind!r} ({verb}) {count}" for (kind, verb), count in kinds.most_common(3))
        return DrainError(
            f"drain(): {limit} runs, and jobs are still due. Most of them were: {ends}. A handler that enqueues "
            "itself or snoozes for ever has no end; for a test that needs more runs pass limit=...",
            self._drained(),
        )

    def _unclaimable(self) -> DrainError:
        job_id, fault = next(iter(self._refused.items()))
        more = f", and of {len(self._refused) - 1} more" if len(self._refused) > 1 else ""
        return DrainError(
            f"drain(): the database refuses the claim of job {job_id}{more}: {fault}. All other due jobs have run; see to "
            "triggers and constraints of your own on the job table",
            self._drained(),
        )

    def _drained(self) -> Drained:
        ends = Counter(run.verb if run.status is JobStatus.READY else run.status for run in self._runs)
        return Drained(
            done=ends[JobStatus.DONE],
            retried=ends[Verb.RETRY],
            snoozed=ends[Verb.SNOOZE],
            dead=ends[JobStatus.DEAD],
            cancelled=ends[JobStatus.CANCELLED],
            runs=tuple(self._runs),
        )


def _named(job: ClaimedJob) -> str:
    return f"drain(): job {job.id} ({job.kind})"


def _note(job: ClaimedJob, performed: Performed) -> str:
    after = "" if performed.delay is None else f" in {format_duration(performed.delay)}"
    return (
        f"{_named(job)}, attempt {performed.attempt} of {job.max_attempts}: the job is {performed.status} now{after}; "
        "with raise_errors=False a failure is counted instead of raised"
    )


def _expire(session: Session) -> None:
    """As a commit does; what somebody has changed and not flushed stays."""
    for obj in list(session.identity_map.values()):
        if not inspect(obj).modified:
            session.expire(obj)
