"""The duty that deletes finished jobs past their retention: batches, sweeps, and what is told of them.

Runners need no agreement about it: a batch skips what another one's holds, so that those which sweep at the same instant
share the work.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_jobqueue.events import JobsPruned, PruneRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.records import Pruned, PrunePosition
    from sa_jobqueue.retention import Retention
    from sa_jobqueue.states import JobStatus
    from sa_jobqueue.store.store import Store

#: Deleted in one statement: small, so that no lock is held long and a rescue has its turn.
PRUNE_LIMIT = 500
#: A batch that took longer than so many seconds makes the next one half as large: somebody's foreign key without an
#: index makes each delete read a whole table.
SLOW = 1.0
#: A sweep that met so many refused jobs ends there, and the next one goes on behind them: where every other job is
#: refused, each costs the server a failed statement and a line in its log.
REFUSED_LIMIT = 500
#: Refused jobs are tried again after so many sweeps: once a day, unless the interval is another.
SWEEPS = 24 * 60


@dataclass(slots=True)
class _Round:
    """One way through all old jobs of a status, in one sweep or several. What was refused lies behind `position`."""

    position: PrunePosition | None = None
    refused: int = 0
    fault: str | None = None
    complete: bool = False
    sweeps: int = 0


class Pruning:
    """Prunes for one runner, a batch at each call."""

    def __init__(
        self,
        store: Store,
        *,
        retention: Retention,
        runner_id: str,
        subscribers: Subscribers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ages = retention.pruned
        self._runner_id = runner_id
        self._subscribers = subscribers
        self._clock = clock
        self._limit = PRUNE_LIMIT
        self._rounds = {status: _Round() for status in self._ages}
        self._told: dict[JobStatus, tuple[int, str | None]] = {}
        self._left: list[JobStatus] = []
        self._deleted = self._refused = 0

    def batch(self) -> bool:
        """One batch of a sweep over all statuses; whether another follows. A status that has nothing old costs no turn."""
        if not self._left:
            self._left = list(self._rounds)
            self._begin()
        while self._left:
            status = self._left[0]
            pruned = self._prune(status)
            if not pruned.more or self._refused >= REFUSED_LIMIT:
                self._rounds[status].complete = not pruned.more
                self._tell(status)
                self._left.pop(0)
                self._begin()
            if pruned.count or pruned.refused or pruned.more:
                return bool(self._left)
        return False

    def _begin(self) -> None:
        """Come to the next status: to the oldest of its jobs, or behind those that were refused lately."""
        if not self._left:
            return
        status = self._left[0]
        self._deleted = self._refused = 0
        current = self._rounds[status]
        if current.complete and (not current.refused or current.sweeps >= SWEEPS):
            current = self._rounds[status] = _Round()
        current.sweeps += 1

    def _prune(self, status: JobStatus) -> Pruned:
        current = self._rounds[status]
        began, limit = self._clock(), self._limit
        self._limit = max(1, limit // 2)  # for the next one, should this one fail: it may be in time
        pruned = self._store.prune(
            status=status, age=self._ages[status], limit=limit, position=current.position
        )
        if self._clock() - began <= SLOW:
            self._limit = min(PRUNE_LIMIT, limit * 2)
        self._deleted += pruned.count
        self._refused += pruned.refused
        current.position = pruned.position
        current.refused += pruned.refused
        current.fault = current.fault or pruned.fault
        return pruned

    def _tell(self, status: JobStatus) -> None:
        """A sweep of this status ends."""
        runner_id, current = self._runner_id, self._rounds[status]
        if self._deleted:
            self._subscribers.emit(JobsPruned(runner_id=runner_id, status=status, count=self._deleted))
        count, fault = self._told.get(status, (0, None))
        # Within a round of many sweeps the count grows with each of them: then only another fault is news.
        if current.fault == fault and (current.refused == count or not current.complete):
            return
        self._told[status] = current.refused, current.fault
        if current.fault is not None:
            self._subscribers.emit(
                PruneRefused(runner_id=runner_id, status=status, count=current.refused, fault=current.fault)
            )
