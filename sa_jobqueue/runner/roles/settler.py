"""The settler's hands: write outcomes, and report what became of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.events import JobSettled, SettleDelayed, job_fields
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.runner import settle
from sa_jobqueue.runner.dispatch_messages import DueIn, GivenBack
from sa_jobqueue.runner.reports import report_answer
from sa_jobqueue.states import Verb
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.loop import Post
    from sa_jobqueue.records import LeaseKey, Settled
    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.slots import Slots
    from sa_jobqueue.store.store import Store

#: So many seconds outcomes wait at most for a report that is on its way and would overwrite a handler's last.
PATIENCE = 0.25


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
        self._book.settle(finished.execution for finished in batch)
        self._report_last(keys)
        if again:
            self._store.renew(keys, lease=self._lease)
        settled = self._store.settle([_to_send(finished, again=again) for finished in batch], again=again)
        return settle.Answered(batch, settled, again)

    def _report_last(self, keys: Sequence[LeaseKey]) -> None:
        """What handlers have said just before their end would be lost with their token."""
        if unwritten := self._book.reports.take_from(keys, patience=PATIENCE):
            try:
                self._store.report(self._book.progress_of(unwritten))
            except Exception as error:
                if not refused(error):  # whatever the database says to a report, outcomes don't wait for it
                    raise

    def _conclude(self, batch: Sequence[settle.Finished], answers: Sequence[Settled]) -> None:
        returned = [finished for finished in batch if finished.settlement.verb is not Verb.COMPLETE]
        if returned:
            for finished, answer in zip(batch, answers, strict=True):
                finished.execution.let_go = answer.landing is Landing.LANDED and not answer.completed
        self._book.drop(finished.execution.key for finished in batch)
        if returned:
            self._tell_what_returned(returned)
        if not self._subscribers:
            return
        silent = not self._subscribers.hear(JobSettled, Verb.COMPLETE)
        for finished, answer in zip(batch, answers, strict=True):
            if silent and finished.settlement.verb is Verb.COMPLETE and answer.status and not answer.fault:
                continue  # as it should be, like nearly all of a batch
            report_answer(finished, answer, self._subscribers)

    def _tell_what_returned(self, batch: Sequence[settle.Finished]) -> None:
        delays = [finished.settlement.delay for finished in batch if finished.settlement.delay is not None]
        if delays:
            self._to_dispatcher(DueIn(min(delays).total_seconds()))
        # Told when it is true: a claim on the way to the database before would have come too early.
        given_back = [one.execution.job for one in batch if one.settlement.verb is Verb.RELEASE]
        if given_back:
            self._to_dispatcher(GivenBack(given_back))

    def _report_delays(self, delayed: Sequence[settle.Delay]) -> None:
        for delay in delayed:
            job = delay.finished.execution.job
            self._subscribers.emit(
                SettleDelayed(
                    **job_fields(job),
                    verb=delay.finished.settlement.verb,
                    cause="expired" if delay.landing is Landing.EXPIRED else "busy",
                    retry_in=timedelta(seconds=delay.wait),
                    fault=delay.fault,
                )
            )
