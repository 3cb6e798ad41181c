"""Completions in the handlers' own transactions, as the runner sees them: who may begin one, and who judges meanwhile.

The runner's side of `completion.owner`. It sends no statement: renewals are the lease keeper's, the fence the handler's,
and what became of a completion is found out by the settler once the handler has ended.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sa_jobqueue.completion.owner import Completion
    from sa_jobqueue.records import Progress
    from sa_jobqueue.runner.book import Book


class Completing:
    """The owner of every lease in the book, for the completions of its handlers; called from their threads.

    `ask` has the keeper renew all leases now.
    """

    def __init__(
        self, book: Book, *, lease: timedelta, renewal_interval: timedelta, ask: Callable[[], None]
    ) -> None:
        self._book = book
        self._lease = lease.total_seconds()
        self._interval = renewal_interval.total_seconds()
        self._ask = ask

    def begin(self, completion: Completion) -> None:
        """See that the lease has most of its time left, and is ours as far as anybody knows.

        What was claimed or renewed less than a renewal interval ago is as good as renewed now: at least the rest of the
        lease is left, whoever took the job since would be found by a renewal only a moment sooner than by the fence, which
        decides in any case, and a commit for every single job is dear. So a statement is sent only when the keeper is
        late; all completions that wait for it share that one.
        """
        begun = time.monotonic()
        if (execution := self._book.begin_completion(completion)) is None:
            raise _failed(completion, "was lost before the completion began")
        if begun - execution.renewed_at < self._interval or not self._book.is_renewed(completion.key):
            # A handler past its timeout is renewed no more: what is left of its lease is all that it has.
            return
        self._ask()
        if not self._wait(lambda: self._judged(completion, begun), begun + self._lease):
            raise _failed(completion, "could not be renewed for as long as it lasts")
        if not self._book.holds(completion.key):
            raise _failed(completion, "was lost before the completion began")

    def hold_renewals(self, completion: Completion) -> None:
        """Leave it out of renewals; one that is under way is waited for, for as long as a lease at most.

        A renewal that has lost its way may still land after that: then the server refuses the fence, as it does when
        anybody else has changed the row.
        """
        if self._book.pause_renewals(completion.key):
            self._wait(lambda: not self._book.is_renewing(completion.key), time.monotonic() + self._lease)

    def resume_renewals(self, completion: Completion) -> None:
        """Renew it again, and soon: it may have missed its turn."""
        if self._book.resume_renewals(completion.key):
            self._ask()

    def fencing(self, completion: Completion) -> None:
        """From here on neither the keeper nor the end of a timeout judges the lease, unless they have done so already."""
        if not self._book.pass_fence(completion.key):
            raise _failed(
                completion, "was lost, or the job was settled in the handler's place, before the fence"
            )

    def unwritten_progress(self, completion: Completion) -> Progress | None:
        """The keeper may be about to write the same: its row is locked for it then, or it was first."""
        return self._book.unwritten_progress(completion.key)

    def decided(self, completion: Completion) -> None:
        """A job that is done has no lease any more; any other is renewed and judged as before."""
        match completion.fate:
            case Fate.LANDED:
                self._book.pause_renewals(completion.key)
            case Fate.UNDONE | Fate.LOST:
                self._book.unfence(completion.key)
            case _:
                pass  # doubtful: the settler finds out when the handler has ended

    def _judged(self, completion: Completion, since: float) -> bool:
        """A renewal that was sent since then has been answered, whatever it found; or none will help any more."""
        return self._book.renewal_judged_at >= since or not self._book.holds(completion.key)

    def _wait(self, predicate: Callable[[], bool], deadline: float) -> bool:
        return self._book.wait_for(predicate, deadline)


def _failed(completion: Completion, why: str) -> LeaseLostError:
    error = LeaseLostError(
        f"job {completion.key[0]}: its lease {why}; another runner may own the job, and nothing of this completion is "
        "written"
    )
    completion.fate, completion.error = Fate.LOST, error
    return error
