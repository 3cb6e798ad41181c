"""What this runner holds: every claimed job from its claim until its outcome has landed or it is given up.

The one piece of state that the loops share, keyed by id *and* token, behind one lock. It knows no SQL and decides
nothing; whether a job is lost is the lease keeper's and the settler's to say.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sa_jobqueue.runner.progress import Reports

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from sa_jobqueue.records import Progress
    from sa_jobqueue.runner.executors.protocol import Execution

Key = tuple[int, "UUID"]


class Book:
    """The held jobs of one runner."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[Key, Execution] = {}
        self._decided: set[Key] = set()
        self._settling: set[Key] = set()
        self._unrenewed: set[Key] = set()
        #: Whose handlers still run although their outcome was decided; kept until these have spoken as well.
        self._given_up: set[Key] = set()
        self._closed = False
        self.reports: Reports = Reports()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, executions: Iterable[Execution]) -> None:
        """Enter what a claim brought."""
        with self._changed:
            self._held.update((execution.key, execution) for execution in executions)

    def snapshot(self) -> list[Key]:
        """The keys held now: what a renewal renews."""
        with self._changed:
            if not self._unrenewed:
                return list(self._held)
            return [key for key in self._held if key not in self._unrenewed]

    def progress_of(self, keys: Iterable[Key]) -> list[tuple[Key, Progress]]:
        """What the handlers of these have reported last, of those that are held."""
        with self._changed:
            held = [(key, self._held.get(key)) for key in keys]
        return [
            (key, progress)
            for key, execution in held
            if execution is not None and (progress := execution.context.latest_progress) is not None
        ]

    def stop_renewing(self, key: Key) -> bool:
        """Leave a job out of renewals until somebody decides its outcome; False when that has happened already."""
        with self._changed:
            if key not in self._held or key in self._decided:
                return False
            self._unrenewed.add(key)
            return True

    def decide(self, key: Key) -> bool:
        """Whoever is told True has the one word about this job's outcome; for everybody after that it is False.

        The end of the grace period and a handler that ends just then must not both send an outcome. What isn't held
        was given up, and its outcome may go to the settler, which reports it; after `close` nobody writes any more.
        """
        with self._changed:
            if key in self._given_up:
                self._given_up.discard(key)
                return False
            if self._closed or key in self._decided:
                return False
            if key in self._held:
                self._decide(key)
            return True

    def give_up(self, key: Key) -> Execution | None:
        """Take the word from a handler that still runs: its execution, None when somebody has decided already.

        Under one token one outcome is sent: the handler's own is refused, however long ago the other was written.
        """
        with self._changed:
            execution = self._held.get(key)
            if self._closed or execution is None or key in self._decided:
                return None
            self._decide(key)
            self._given_up.add(key)
            return execution

    def _decide(self, key: Key) -> None:
        self._decided.add(key)
        self._changed.notify_all()
        self._unrenewed.discard(key)  # from here on it waits for a write only, as every other outcome does

    def close(self) -> None:
        """The last word was spoken."""
        with self._changed:
            self._closed = True

    def settle(self, keys: Iterable[Key]) -> None:
        """Mark outcomes as being written: from here on the settler alone judges them."""
        with self._changed:
            self._settling.update(keys)

    def judge(self, key: Key) -> Execution | None:
        """The execution whose lease the keeper may judge, None when it is settled, given up, or being settled."""
        with self._changed:
            return None if key in self._settling else self._held.get(key)

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget jobs: their outcome has landed, or they are lost."""
        with self._changed:
            for key in keys:
                self._held.pop(key, None)
                self._decided.discard(key)
                self._settling.discard(key)
                self._unrenewed.discard(key)
            self._changed.notify_all()

    def undecided(self) -> list[Execution]:
        """The executions that have no outcome yet."""
        with self._changed:
            return self._undecided()

    def _undecided(self) -> list[Execution]:
        return [one for key, one in self._held.items() if key not in self._decided]

    def decide_all(self) -> list[Execution]:
        """The executions that nobody has decided yet, the word about each taken: for the end of the grace period."""
        with self._changed:
            undecided = self._undecided()
            self._decided.update(one.key for one in undecided)
            self._unrenewed.clear()
            return undecided

    def wait_until_decided(self, keys: Collection[Key], deadline: float) -> bool:
        """Block until each of these has its outcome or is held no more, or the monotonic deadline."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(key in self._decided or key not in self._held for key in keys),
                timeout=max(0.0, deadline - time.monotonic()),
            )

    def wait_until_empty(self, deadline: float) -> bool:
        """Block until nothing is held, or the monotonic deadline; True when nothing is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._held, timeout=max(0.0, deadline - time.monotonic())
            )
