"""Who has reported progress that is not written yet. Handlers note it, the lease keeper and the settler take it.

Only the keys are here: the latest report itself stays in the job's context, where the next one replaces it. So a handler
may report a million times, and each costs one look at a set.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sa_jobqueue.records import LeaseKey


class Reports:
    """The jobs with progress to be written. From any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._fresh: set[LeaseKey] = set()
        #: Taken to be written, and not answered yet.
        self._writing: set[LeaseKey] = set()
        self._announce: Callable[[], None] | None = None

    def announce_by(self, announce: Callable[[], None]) -> None:
        """Call this when there is a first report; no more until these have been taken."""
        self._announce = announce

    def note(self, key: LeaseKey) -> None:
        """The context of this job has progress that nobody has written; called after it was put there."""
        # Without the lock: whoever took the set away in between reads the context later than this, and so sees it.
        if key in self._fresh:
            return
        with self._changed:
            first = not self._fresh
            self._fresh.add(key)
        if first and self._announce is not None:
            self._announce()

    def take(self) -> set[LeaseKey]:
        """All of them; read their contexts afterwards, and say when they are `written`."""
        with self._changed:
            self._writing, self._fresh = self._fresh, set()
            return self._writing

    def take_from(self, keys: Iterable[LeaseKey], *, patience: float) -> list[LeaseKey]:
        """Those of these that are among them, or that somebody else has taken and may write too late.

        What somebody else is writing may be older and land later: its answer is waited for, so many seconds at most.
        """
        if not self._fresh and not self._writing:
            return []
        with self._changed:
            taken = [key for key in keys if key in self._fresh or key in self._writing]
            self._changed.wait_for(lambda: self._writing.isdisjoint(taken), timeout=patience)
            self._fresh = self._fresh.difference(taken)
        return taken

    def waits(self, key: LeaseKey) -> bool:
        """It is among them, or somebody who has taken it has had no answer yet."""
        return key in self._fresh or key in self._writing

    def written(self, *, but: Iterable[LeaseKey] = ()) -> None:
        """What was taken is written, `but` for these, which are there to be taken again; nobody is told of them."""
        with self._changed:
            self._writing = set()
            self._fresh = self._fresh.union(but)
            self._changed.notify_all()
