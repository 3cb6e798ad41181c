"""The dispatcher's hands: claim jobs, hand them to the executor, and say that the runner waits for more."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.context import context_of
from sa_jobqueue.events import JobsClaimed, NewerPayload, WakeUpFailed, job_fields
from sa_jobqueue.records import Settlement
from sa_jobqueue.runner import settle
from sa_jobqueue.runner.dispatch_messages import (
    Announce,
    Announced,
    Claim,
    Claimed,
    Count,
    Counted,
    Drained,
    GiveBack,
    ReleaseClaim,
    Released,
    Silenced,
)
from sa_jobqueue.runner.executors.protocol import Execution
from sa_jobqueue.runner.low_water import sight
from sa_jobqueue.runner.verdict import unstarted
from sa_jobqueue.states import Verb
from sa_jobqueue.store.trouble import fault_of, nobody_could, passes_by_itself, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_jobqueue.completion import Completions
    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.loop import Post
    from sa_jobqueue.records import ClaimedJob
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.store.store import Store


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
        #: Until when other jobs with a newer payload, by kind and version, are put back in silence.
        self._silent_until: dict[tuple[str, int], float] = {}

    def perform(self, action: Any) -> Any:
        match action:
            case Claim():
                return self._claim(action)
            case Announce(seconds):
                return self._announce(seconds)
            case Count():
                return Counted(len(self._book))
            case ReleaseClaim(token):
                self._store.release_claim(token=token)
                return Released(token)
            case GiveBack(queues):
                for execution in self._executor.take_back(queues):
                    self._settle_unstarted(execution, Settlement(*execution.key, Verb.RELEASE))
            case Drained(fault):
                self._on_drained(fault)
        return None

    def _claim(self, claim: Claim) -> Claimed:
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
            if (settlement := unstarted(execution.job, execution.handler)) is None:
                startable.append(execution)
                continue
            if settlement.verb is Verb.SNOOZE and settlement.delay is not None:
                self._tell_newer(execution, settlement.delay)
            self._settle_unstarted(execution, settlement)
        got, sizes = Counter[str](), Counter[str]()
        for job in jobs:
            got[job.queue] += 1
            sizes[job.queue] += job.size
        if jobs and self._subscribers.hear(JobsClaimed):
            duration = timedelta(seconds=time.monotonic() - started)
            self._subscribers.emit(JobsClaimed(runner_id=self._runner_id, queues=got, duration=duration))
        self._executor.submit(startable)
        jitter = random.random()  # noqa: S311 - spreads polls
        return Claimed(claim.quotas, got, unsettled, jitter, claim.behind, seen, sizes)

    def _announce(self, seconds: float | None) -> Announced | Silenced:
        sent_at = time.monotonic()
        try:
            if seconds is None:
                self._store.stop_waiting()
                return Silenced()
            waiting = self._store.wait_for_jobs(
                queues=self._queues, kinds=self._kinds, wait=timedelta(seconds=seconds)
            )
        except DBAPIError as error:
            if not refused(error) or passes_by_itself(error) or nobody_could(error):
                raise
            self._tell_refused(error)
            return Silenced(refused=True)
        next_due = None if waiting.next_due is None else waiting.next_due.total_seconds()
        return Announced(waiting.others, next_due, sent_at, random.random())  # noqa: S311 - spreads looks

    def _tell_newer(self, execution: Execution, retry_in: timedelta) -> None:
        job, now = execution.job, time.monotonic()
        told = (job.kind, job.payload_version)
        if now < self._silent_until.get(told, now):
            return  # behind it may stand a backlog of them, each claimed once in that time
        self._silent_until[told] = now + retry_in.total_seconds()
        self._subscribers.emit(
            NewerPayload(
                **job_fields(job),
                payload_version=job.payload_version,
                newest=execution.handler.payload_version,
                retry_in=retry_in,
            )
        )

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
