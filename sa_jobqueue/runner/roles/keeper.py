"""The lease keeper's hands: renew, write progress, and tell handlers what became of their leases."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.events import CancelRequested, LeaseLost
from sa_jobqueue.records import Landing
from sa_jobqueue.runner import leases
from sa_jobqueue.runner.executors.protocol import Interruption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.loop import Post
    from sa_jobqueue.records import Renewed
    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.store.leases import Store


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
        # As with renewals: what is left out of them is left alone, for its row may be part of somebody's snapshot. It waits.
        keys = [key for key in self._book.begin_renewal() if key in reported]
        waiting = [key for key in reported.difference(keys) if self._book.is_unfinished(key)]
        try:
            answers = self._store.report(self._book.progress_of(keys)) if keys else []
        except Exception:
            self._book.reports.written(but=[*keys, *waiting])
            raise
        finally:
            self._book.end_renewal()
        waiting += [(answer.id, answer.token) for answer in answers if answer.landing is Landing.BUSY]
        self._book.reports.written(but=waiting)
        self._judge_all(answers)
        return leases.ProgressWritten(left=bool(waiting))

    def _judge_all(self, answers: Sequence[Renewed]) -> None:
        # The youngest first: what waits is told before what runs ends and it gets the slot.
        for answer in reversed(answers):
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
