"""Where the outcome of every handler arrives, and who may have it: the settler, as long as it is the first for its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.runner.dispatch_messages import Written
from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.runner.reports import report_completed, report_dropped

if TYPE_CHECKING:
    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.loop import Post
    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.executors.protocol import Execution
    from sa_jobqueue.runner.settle import Finished
    from sa_jobqueue.runner.slots import Slots


class Intake:
    """Takes outcomes in, from any thread."""

    def __init__(
        self, *, book: Book, slots: Slots, to_settler: Post, to_dispatcher: Post, subscribers: Subscribers
    ) -> None:
        self._book = book
        self._slots = slots
        self._to_settler = to_settler
        self._to_dispatcher = to_dispatcher
        self._subscribers = subscribers
        #: Whose handlers the end of the grace period has ended, as far as their outcomes say so.
        self.handed_back: list[Execution] = []

    def take(self, finished: Finished) -> None:
        """One outcome. Only the first for a job is written, and none where the handler's own transaction has done it."""
        execution = finished.execution
        self._slots.ended(finished)
        first = self._book.decide(execution)
        if first and not execution.completed:
            if finished.cause is Interruption.SHUTDOWN:
                self.handed_back.append(execution)
            # Until the word was taken a block that the handler has left to another thread could still pass its fence.
            self._to_settler(finished._replace(again=True) if execution.doubtful else finished)
            return
        # Nothing is left to write. When it isn't the first, what was decided in its place is being written and told already.
        self._slots.tell_rest()
        if first:
            self._book.drop([execution.key])
        self._to_dispatcher(Written(1))
        if not execution.completed:
            report_dropped(finished, "lost", self._subscribers)
        elif first:
            report_completed(finished, self._subscribers)
