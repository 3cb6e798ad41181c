"""The hands of the loops: what each action of a pure step does to the store, the book and the executor.

One class for each loop, each with a store (a connection) of its own. When to do what is decided in the steps; what the
rows say afterwards in the statements.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.context import context_of
from sa_jobqueue.events import (
    CancelRequested,
    JobsClaimed,
    JobSettled,
    LeaseLost,
    OutcomeDropped,
    SettleDelayed,
    WakeUpFailed,
)
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.runner import dispatch, leases, settle
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.runner.low_water import sight
from sa_jobqueue.states import EXPIRED_REASON, JobStatus, Verb
from sa_jobqueue.store.trouble import fault_of, passes_by_itself, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_jobqueue.completion import Completions
    from sa_jobqueue.events import DropCause, Subscribers
    from sa_jobqueue.records import ClaimedJob, Renewed, Settled
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.book import Book, Key
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.store.leases import Store

    Post = Callable[[Any], None]


class Dispatcher:
    """Claims jobs and hands them to the executor."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry,
        queues: Sequence[str],
        book: Book,
        executor: Executor,
        lease: timedelta,
        runner_id: str,
        to_settler: Post,
        completions: Completions,
        on_drained: Callable[[Exception | None], None],
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._registry = registry
        self._queues = list(queues)
        self._kinds = registry.kinds
        self._book = book
        self._executor = executor
        self._lease = lease
        self._runner_id = runner_id
        self._to_settler = to_settler
        self._completions = completions
        self._on_drained = on_drained
        self._subscribers = subscribers
        self._told_refused = False

    def perform(self, action: Any) -> Any:
        match action:
            case dispatch.Claim():
                return self._claim(action)
            case dispatch.Announce(seconds):
                return self._announce(seconds)
            case dispatch.Count():
                return dispatch.Counted(len(self._book))
            case dispatch.ReleaseClaim(token):
                self._store.release_claim(token=token)
                return dispatch.Released(token)
            case dispatch.GiveBack(queues):
                unstarted = self._executor.take_back(queues)
                for execution in unstarted:
                    self._settle_unstarted(execution, Settlement(*execution.key, Verb.RELEASE))
                return dispatch.GivenBack([execution.job for execution in unstarted])
            case dispatch.Drained(fault):
                self._on_drained(fault)
        return None

    def _claim(self, claim: dispatch.Claim) -> dispatch.Claimed:
        unsettled = len(self._book)
        full = len(claim.behind) < len(claim.quotas)
        now = self._store.now() if full else None
        started = time.monotonic()
        answer = self._store.claim_behind(
            claim.behind,
            token=claim.token,
            quotas=claim.quotas,
            kinds=self._kinds,
            lease=self._lease,
        )
        jobs, seen = answer.jobs, sight(answer, seconds=time.monotonic() - started, now=now)
        # Whatever fails up to here makes the claim a lost one, so from here on nothing may fail.
        executions = [self._execution(job, started) for job in jobs]
        self._book.hold(executions)
        startable = []
        for execution in executions:
            if execution.job.expired:
                aborted = Settlement(*execution.key, Verb.ABORT, reason=EXPIRED_REASON)
                self._settle_unstarted(execution, aborted)
            else:
                startable.append(execution)
        got = Counter(job.queue for job in jobs)
        if jobs and self._subscribers.hear(JobsClaimed):
            duration = timedelta(seconds=time.monotonic() - started)
            self._subscribers.emit(JobsClaimed(runner_id=self._runner_id, queues=got, duration=duration))
        self._executor.submit(startable)
        jitter = random.random()  # noqa: S311 - spreads polls
        return dispatch.Claimed(claim.quotas, got, unsettled, jitter, claim.behind, seen)

    def _announce(self, seconds: float | None) -> dispatch.Announced | dispatch.Silenced:
        sent_at = time.monotonic()
        try:
            if seconds is None:
                self._store.stop_waiting()
                return dispatch.Silenced()
            waiting = self._store.wait_for_jobs(
                queues=self._queues, kinds=self._kinds, wait=timedelta(seconds=seconds)
            )
        except DBAPIError as error:
            if not refused(error) or passes_by_itself(error):
                raise
            self._tell_refused(error)
            return dispatch.Silenced(refused=True)
        next_due = None if waiting.next_due is None else waiting.next_due.total_seconds()
        return dispatch.Announced(waiting.others, next_due, sent_at, random.random())  # noqa: S311 - spreads looks

    def _tell_refused(self, error: DBAPIError) -> None:
        if not self._told_refused:
            self._told_refused = True
            self._subscribers.emit(
                WakeUpFailed(runner_id=self._runner_id, cause="refused", fault=fault_of(error))
            )

    def _execution(self, job: ClaimedJob, claimed_at: float) -> Execution:
        handler = self._registry.find(job.kind)
        if handler is None:  # registered kinds are the only ones claimed, and a registry never forgets
            raise LookupError(f"job {job.id} was claimed for kind {job.kind!r}, which has no handler")
        context = context_of(
            job,
            runner_id=self._runner_id,
            on_progress=partial(self._book.reports.note, (job.id, job.token)),
            completer=self._completions.of(job),
        )
        return Execution(job, handler, context, claimed_at=claimed_at)

    def _settle_unstarted(self, execution: Execution, settlement: Settlement) -> None:
        self._to_settler(settle.Finished(execution, settlement, seconds=None))


def report_dropped(finished: settle.Finished, cause: DropCause, subscribers: Subscribers) -> None:
    """Tell that an outcome was thrown away."""
    job, settlement = finished.execution.job, finished.settlement
    subscribers.emit(
        OutcomeDropped(
            job_id=job.id,
            kind=job.kind,
            queue=job.queue,
            attempt=job.counted_attempts,
            verb=settlement.verb,
            cause=cause,
            error=settlement.error,
        )
    )


def report_completed(finished: settle.Finished, subscribers: Subscribers) -> None:
    """Tell that the handler's own transaction has completed the job, and what else the handler said."""
    if not subscribers:
        return
    job, settlement = finished.execution.job, finished.settlement
    subscribers.emit(
        JobSettled(
            job_id=job.id,
            kind=job.kind,
            queue=job.queue,
            attempt=job.counted_attempts,
            max_attempts=job.max_attempts,
            verb=Verb.COMPLETE,
            status=JobStatus.DONE,
            duration=None if finished.seconds is None else timedelta(seconds=finished.seconds),
        )
    )
    if settlement.verb is not Verb.COMPLETE and not finished.again:
        report_dropped(finished, "completed", subscribers)


def _to_send(finished: settle.Finished, *, again: bool) -> Settlement:
    """With the transaction of a doubtful completion, as far as it is known by now."""
    completion = finished.execution.completion
    if not again or completion is None:
        return finished.settlement
    return finished.settlement._replace(xid=completion.xid)


class Settler:
    """Writes outcomes and reports what became of them."""

    def __init__(
        self,
        store: Store,
        *,
        book: Book,
        lease: timedelta,
        to_dispatcher: Post,
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._book = book
        self._lease = lease
        self._to_dispatcher = to_dispatcher
        self._subscribers = subscribers

    def perform(self, action: Any) -> Any:
        match action:
            case settle.Tell(event):
                self._to_dispatcher(event)
            case settle.Flush(batch, again):
                return self._flush(batch, again=again)
            case settle.Conclude(batch, answers):
                self._conclude(batch, answers)
            case settle.Postpone(delayed):
                self._report_delays(delayed)
        return None

    def _flush(self, batch: Sequence[settle.Finished], *, again: bool) -> settle.Answered:
        keys = [finished.execution.key for finished in batch]
        self._book.settle(keys)
        self._report_last(keys)
        if again:
            self._store.renew(keys, lease=self._lease)
        settled = self._store.settle([_to_send(finished, again=again) for finished in batch], again=again)
        return settle.Answered(batch, settled, again)

    def _report_last(self, keys: Sequence[Key]) -> None:
        """What handlers have said just before their end would be lost with their token."""
        if unwritten := self._book.reports.take_from(keys):
            try:
                self._store.report(self._book.progress_of(unwritten))
            except Exception as error:
                if not refused(error):  # whatever the database says to a report, outcomes don't wait for it
                    raise

    def _conclude(self, batch: Sequence[settle.Finished], answers: Sequence[Settled]) -> None:
        self._book.drop(finished.execution.key for finished in batch)
        delays = [finished.settlement.delay for finished in batch if finished.settlement.delay is not None]
        if delays:
            self._to_dispatcher(dispatch.DueIn(min(delays).total_seconds()))
        if not self._subscribers:
            return
        silent = not self._subscribers.hear(JobSettled, Verb.COMPLETE)
        for finished, answer in zip(batch, answers, strict=True):
            job, settlement = finished.execution.job, finished.settlement
            if answer.completed:
                report_completed(finished, self._subscribers)
                continue
            if silent and settlement.verb is Verb.COMPLETE and answer.status and answer.fault is None:
                continue
            if answer.landing is Landing.LANDED and answer.status is not None:
                self._subscribers.emit(
                    JobSettled(
                        job_id=job.id,
                        kind=job.kind,
                        queue=job.queue,
                        attempt=job.counted_attempts,
                        max_attempts=job.max_attempts,
                        verb=settlement.verb,
                        status=answer.status,
                        duration=None if finished.seconds is None else timedelta(seconds=finished.seconds),
                        delay=settlement.delay,
                        reason=settlement.reason,
                        error=settlement.error,
                        fault=answer.fault,
                    )
                )
            else:
                cause: DropCause = "gone" if answer.landing is Landing.GONE else "lost"
                report_dropped(finished, cause, self._subscribers)

    def _report_delays(self, delayed: Sequence[settle.Delay]) -> None:
        for delay in delayed:
            job = delay.finished.execution.job
            self._subscribers.emit(
                SettleDelayed(
                    job_id=job.id,
                    kind=job.kind,
                    queue=job.queue,
                    attempt=job.counted_attempts,
                    verb=delay.finished.settlement.verb,
                    cause="expired" if delay.landing is Landing.EXPIRED else "busy",
                    retry_in=timedelta(seconds=delay.wait),
                    fault=delay.fault,
                )
            )


class Keeper:
    """Renews the leases in the book and tells handlers what became of them; those that can be interrupted are."""

    def __init__(
        self,
        store: Store,
        *,
        book: Book,
        executor: Executor,
        lease: timedelta,
        to_maintenance: Post,
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._book = book
        self._executor = executor
        self._lease = lease
        self._to_maintenance = to_maintenance
        self._subscribers = subscribers

    def perform(self, action: Any) -> Any:
        match action:
            case leases.Renew(sent_at):
                try:
                    if keys := self._book.begin_renewal():
                        return leases.RenewalDone(self._store.renew(keys, lease=self._lease), sent_at)
                finally:
                    self._book.end_renewal()
                # With nothing to renew it asks all the same: only who can reach the database may say that all is well.
                self._store.installed_version()
                return leases.RenewalDone((), sent_at)
            case leases.WriteProgress():
                return self._write_progress()
            case leases.Tell(event):
                self._to_maintenance(event)
            case leases.Judge(answers, sent_at):
                self._judge_all(answers)
                landed = [(answer.id, answer.token) for answer in answers if answer.landing is Landing.LANDED]
                self._book.note_renewal(landed, sent_at)
        return None

    def _write_progress(self) -> leases.ProgressWritten:
        reported = self._book.reports.take()
        # As with renewals: what is left out of them is left alone, for its row may be part of somebody's snapshot.
        keys = [key for key in self._book.begin_renewal() if key in reported]
        try:
            answers = self._store.report(self._book.progress_of(keys)) if keys else []
        except Exception:
            self._book.reports.written(but=keys)
            raise
        finally:
            self._book.end_renewal()
        busy = [(answer.id, answer.token) for answer in answers if answer.landing is Landing.BUSY]
        self._book.reports.written(but=busy)
        self._judge_all(answers)
        return leases.ProgressWritten(left=bool(busy))

    def _judge_all(self, answers: Sequence[Renewed]) -> None:
        for answer in answers:
            if answer.landing in (Landing.LOST, Landing.GONE) or answer.cancel_requested:
                self._judge((answer.id, answer.token), answer.landing)

    def _judge(self, key: Any, landing: Landing) -> None:
        execution = self._book.judge(key)
        if execution is None:
            return
        job, context = execution.job, execution.context
        if landing in (Landing.LOST, Landing.GONE):
            context.mark_lost()
            self._book.drop([key])
            self._subscribers.emit(
                LeaseLost(
                    job_id=job.id,
                    kind=job.kind,
                    queue=job.queue,
                    attempt=job.counted_attempts,
                    cause="gone" if landing is Landing.GONE else "lost",
                )
            )
            self._executor.interrupt(execution, Interruption.LEASE_LOST)
        elif not context.cancel_requested:
            context.mark_cancel_requested()
            self._subscribers.emit(
                CancelRequested(job_id=job.id, kind=job.kind, queue=job.queue, attempt=job.counted_attempts)
            )
            self._executor.interrupt(execution, Interruption.CANCEL_REQUESTED)
