"""What this runner holds: every claimed job from its claim until its outcome has landed or it is given up.

The one piece of state that the loops share, keyed by id *and* token, behind one lock; how far each job has come stands in
its execution, which may outlive its entry. It knows no SQL and decides nothing; whether a job is lost is the lease
keeper's and the settler's to say.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.runner.progress import Reports
from sa_jobqueue.runner.signals import LONGEST_SLEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from sa_jobqueue.completion.owner import Completion
    from sa_jobqueue.records import LeaseKey, Progress
    from sa_jobqueue.runner.executors.protocol import Execution


class Book:
    """The held jobs of one runner."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[LeaseKey, Execution] = {}
        self._renewing: frozenset[LeaseKey] | None = None
        #: When the last renewal was sent whose answers have been judged, in monotonic seconds.
        self.renewal_judged_at: float = 0.0
        self._closed = False
        self.reports: Reports = Reports()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, executions: Iterable[Execution]) -> None:
        """Enter what a claim brought."""
        with self._changed:
            self._held.update((execution.key, execution) for execution in executions)

    def holds(self, key: LeaseKey) -> bool:
        """It is held, and the last word has not been spoken."""
        return key in self._held and not self._closed

    def snapshot(self) -> list[LeaseKey]:
        """The keys held now that are renewed."""
        with self._changed:
            return self._renewed()

    def _renewed(self) -> list[LeaseKey]:
        return [key for key, execution in self._held.items() if execution.renewed]

    def not_done(self, keys: Iterable[LeaseKey]) -> list[LeaseKey]:
        """Those of these that are held, and whose handlers have not completed them."""
        with self._changed:
            return [key for key in keys if key in self._held and not self._held[key].completed]

    def begin_renewal(self) -> list[LeaseKey]:
        """The keys to renew; until `end_renewal` these count as being renewed."""
        with self._changed:
            keys = self._renewed()
            self._renewing = frozenset(keys)
            return keys

    def end_renewal(self) -> None:
        """It was answered, or its connection has failed."""
        with self._changed:
            self._renewing = None
            self._changed.notify_all()

    def note_renewal(self, keys: Iterable[LeaseKey], sent_at: float) -> None:
        """These leases were renewed by what was sent then, and what was found lost has been dropped."""
        with self._changed:
            for key in keys:
                if (execution := self._held.get(key)) is not None:
                    execution.renewed_at = sent_at
            self.renewal_judged_at = sent_at
            self._changed.notify_all()

    def is_renewing(self, key: LeaseKey) -> bool:
        """A renewal of it is under way."""
        return self._renewing is not None and key in self._renewing

    def is_renewed(self, key: LeaseKey) -> bool:
        """It is among what the next renewal renews."""
        execution = self._held.get(key)
        return execution is not None and execution.renewed

    def begin_completion(self, completion: Completion) -> Execution | None:
        """Enter the completion that a handler begins, and give its execution; None when it has no word any more.

        After one that wrote nothing for certain there may be another, for transactions that are run again. Raises
        RuntimeError while there is one that may have landed.
        """
        with self._changed:
            execution = self._undecided_one(completion.key)
            if execution is None:
                return None
            if (former := execution.completion) is not None:
                if former.fate is Fate.LOST:
                    return None
                if former.fate is not Fate.UNDONE:
                    raise RuntimeError(
                        f"job {completion.key[0]}: this run has a completion already, which is {former.fate}; a job is "
                        "completed once: let the handler end"
                    )
            execution.completion = completion
            return execution

    def pass_fence(self, key: LeaseKey) -> bool:
        """From now on nobody but the completion judges the lease; False when somebody has decided already."""
        with self._changed:
            execution = self._undecided_one(key)
            if execution is None:
                return False
            execution.fenced = True
            return True

    def unfence(self, key: LeaseKey) -> None:
        """The completion is over without having written anything: the lease is judged as any other."""
        with self._changed:
            if (execution := self._held.get(key)) is not None:
                execution.fenced = execution.paused = False

    def pause_renewals(self, key: LeaseKey) -> bool:
        """Leave a job out of the renewals that begin from now on; False when it isn't held."""
        with self._changed:
            if (execution := self._held.get(key)) is None:
                return False
            execution.paused = True
            return True

    def resume_renewals(self, key: LeaseKey) -> bool:
        """Renew it again; False when it had not been left out, and when it is done."""
        with self._changed:
            execution = self._held.get(key)
            if execution is None or not execution.paused or execution.completed:
                return False
            execution.paused = False
            return True

    def _undecided_one(self, key: LeaseKey) -> Execution | None:
        execution = None if self._closed else self._held.get(key)
        return None if execution is None or execution.decided else execution

    def progress_of(self, keys: Iterable[LeaseKey]) -> list[tuple[LeaseKey, Progress]]:
        """What the handlers of these have reported last, of those that are held."""
        with self._changed:
            held = [(key, self._held.get(key)) for key in keys]
        return [
            (key, progress)
            for key, execution in held
            if execution is not None and (progress := execution.context.latest_progress) is not None
        ]

    def unwritten_progress(self, key: LeaseKey) -> Progress | None:
        """What the handler has reported last, if nobody has written it yet."""
        execution = self._held.get(key) if self.reports.waits(key) else None
        return None if execution is None else execution.context.latest_progress

    def stop_renewing(self, key: LeaseKey) -> bool:
        """Leave a job out of renewals until somebody decides its outcome; False when that has happened already."""
        with self._changed:
            execution = self._held.get(key)
            if execution is None or execution.decided:
                return False
            execution.overdue = True
            return True

    def decide(self, execution: Execution) -> bool:
        """Whoever is told True has the one word about this job's outcome; for everybody after that it is False.

        The end of the grace period and a handler that ends just then must not both send an outcome, nor must one that ends
        long after what was decided in its place has been written. The outcome of a lost job may go to the settler, which
        reports it; after `close` nobody writes any more.
        """
        with self._changed:
            if self._closed or execution.decided:
                return False
            self._decide(execution)
            return True

    def give_up(self, key: LeaseKey) -> Execution | None:
        """Take the word from a handler that still runs: its execution, None when somebody has decided already.

        Under one token one outcome is sent: the handler's own is refused, however long ago the other was written. A job
        that its handler has completed is done, and nobody's to give up.
        """
        with self._changed:
            execution = self._undecided_one(key)
            if execution is None or execution.completed:
                return None
            self._decide(execution)
            return execution

    def _decide(self, execution: Execution) -> None:
        # From here on it waits for a write only, as every other outcome does.
        execution.decided, execution.overdue, execution.paused = True, False, False
        self._changed.notify_all()

    def close(self) -> None:
        """The last word was spoken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def settle(self, executions: Iterable[Execution]) -> None:
        """Mark outcomes as being written: from here on the settler alone judges them."""
        with self._changed:
            for execution in executions:
                execution.settling = True

    def judge(self, key: LeaseKey) -> Execution | None:
        """The execution whose lease the keeper may judge.

        None when it is settled, given up, or being settled, and past the fence of a completion: what takes the token
        away may be the completion itself.
        """
        with self._changed:
            execution = self._held.get(key)
            return None if execution is None or execution.settling or execution.fenced else execution

    def drop(self, keys: Iterable[LeaseKey]) -> None:
        """Forget jobs: their outcome has landed, or they are lost."""
        with self._changed:
            for key in keys:
                self._held.pop(key, None)
            self._changed.notify_all()

    def undecided(self) -> list[Execution]:
        """The executions that have no outcome yet."""
        with self._changed:
            return self._undecided()

    def _undecided(self) -> list[Execution]:
        return [one for one in self._held.values() if not one.decided]

    def decide_all(self) -> list[Execution]:
        """The executions that nobody has decided yet, the word about each taken: for the end of the grace period."""
        with self._changed:
            undecided = self._undecided()
            for execution in undecided:
                self._decide(execution)
            return undecided

    def wait_for(self, predicate: Callable[[], bool], deadline: float) -> bool:
        """Block until this holds, as far as it depends on the book, or the monotonic deadline; its last answer."""
        with self._changed:
            while not (holds := predicate()) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, LONGEST_SLEEP))
            return holds

    def wait_until_decided(self, executions: Collection[Execution], deadline: float) -> bool:
        """Block until each of these has its outcome or is held no more, or the monotonic deadline."""
        return self.wait_for(
            lambda: all(one.decided or one.key not in self._held for one in executions), deadline
        )

    def wait_until_empty(self, deadline: float) -> bool:
        """Block until nothing is held, or the monotonic deadline; True when nothing is."""
        return self.wait_for(lambda: not self._held, deadline)
