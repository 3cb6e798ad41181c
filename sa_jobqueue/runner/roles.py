"""The hands of the loops: what each action of a pure step does to the store, the book and the executor.

One class for each loop, each with a store (a connection) of its own. When to do what is decided in the steps; what the
rows say afterwards in the statements.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.context import context_of
from sa_jobqueue.events import (
    CancelRequested,
    JobsClaimed,
    JobSettled,
    LeaseLost,
    OutcomeDropped,
    SettleDelayed,
)
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.runner import dispatch, leases, settle
from sa_jobqueue.runner.executors.protocol import Execution, Interruption
from sa_jobqueue.states import EXPIRED_REASON, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.records import ClaimedJob, Settled
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.runner.slots import Slots
    from sa_jobqueue.store.leases import Store

    Post = Callable[[Any], None]


class Dispatcher:
    """Claims jobs and hands them to the executor."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry,
        book: Book,
        executor: Executor,
        lease: timedelta,
        runner_id: str,
        to_settler: Post,
        on_drained: Callable[[Exception | None], None],
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._registry = registry
        self._kinds = registry.kinds
        self._book = book
        self._executor = executor
        self._lease = lease
        self._runner_id = runner_id
        self._to_settler = to_settler
        self._on_drained = on_drained
        self._subscribers = subscribers

    def perform(self, action: Any) -> Any:
        match action:
            case dispatch.Claim():
                return self._claim(action)
            case dispatch.Count():
                return dispatch.Counted(len(self._book))
            case dispatch.ReleaseClaim(token):
                self._store.release_claim(token=token)
                return dispatch.Released(token)
            case dispatch.GiveBack(queues):
                for execution in self._executor.take_back(queues):
                    self._settle_unstarted(execution, Settlement(*execution.key, Verb.RELEASE))
            case dispatch.Drained(fault):
                self._on_drained(fault)
        return None

    def _claim(self, claim: dispatch.Claim) -> dispatch.Claimed:
        unsettled = len(self._book)
        started = time.monotonic()
        jobs = self._store.claim(
            token=claim.token,
            quotas=claim.quotas,
            kinds=self._kinds,
            lease=self._lease,
        )
        # Whatever fails up to here makes the claim a lost one, so from here on nothing may fail.
        executions = [self._execution(job) for job in jobs]
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
        return dispatch.Claimed(claim.quotas, got, unsettled, random.random())  # noqa: S311 - spreads polls

    def _execution(self, job: ClaimedJob) -> Execution:
        handler = self._registry.find(job.kind)
        if handler is None:  # registered kinds are the only ones claimed, and a registry never forgets
            raise LookupError(f"job {job.id} was claimed for kind {job.kind!r}, which has no handler")
        return Execution(job, handler, context_of(job, runner_id=self._runner_id))

    def _settle_unstarted(self, execution: Execution, settlement: Settlement) -> None:
        self._to_settler(settle.Finished(execution, settlement, seconds=None))


def report_dropped(finished: settle.Finished, landing: Landing, subscribers: Subscribers) -> None:
    """Tell that an outcome was thrown away."""
    job = finished.execution.job
    subscribers.emit(
        OutcomeDropped(
            job_id=job.id,
            kind=job.kind,
            queue=job.queue,
            attempt=job.counted_attempts,
            verb=finished.settlement.verb,
            cause="gone" if landing is Landing.GONE else "lost",
        )
    )


class Settler:
    """Writes outcomes and reports what became of them."""

    def __init__(
        self,
        store: Store,
        *,
        book: Book,
        lease: timedelta,
        slots: Slots,
        to_dispatcher: Post,
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._book = book
        self._lease = lease
        self._slots = slots
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
        self._slots.tell_rest()
        keys = [finished.execution.key for finished in batch]
        self._book.settle(keys)
        if again:
            self._store.renew(keys, lease=self._lease)
        settled = self._store.settle([finished.settlement for finished in batch], again=again)
        return settle.Answered(batch, settled, again)

    def _conclude(self, batch: Sequence[settle.Finished], answers: Sequence[Settled]) -> None:
        self._book.drop(finished.execution.key for finished in batch)
        if not self._subscribers:
            return
        silent = not self._subscribers.hear(JobSettled, Verb.COMPLETE)
        for finished, answer in zip(batch, answers, strict=True):
            job, settlement = finished.execution.job, finished.settlement
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
                report_dropped(finished, answer.landing, self._subscribers)

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
                if keys := self._book.snapshot():
                    return leases.RenewalDone(self._store.renew(keys, lease=self._lease), sent_at)
                # With nothing to renew it asks all the same: only who can reach the database may say that all is well.
                self._store.installed_version()
                return leases.RenewalDone((), sent_at)
            case leases.Tell(event):
                self._to_maintenance(event)
            case leases.Judge(answers):
                # The youngest first: what waits is told before what runs ends and it gets the slot.
                for answer in reversed(answers):
                    if answer.landing in (Landing.LOST, Landing.GONE) or answer.cancel_requested:
                        self._judge((answer.id, answer.token), answer.landing)
        return None

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
