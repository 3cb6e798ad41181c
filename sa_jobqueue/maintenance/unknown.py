"""Jobs that this runner has no handler for: told of when they appear, moved out of the way when they are a crowd.

A claim reads past them until it has found enough jobs of its own kinds. So the first of a queue stay where they are, for
a runner that knows them may start any moment and finds work at once; those behind are postponed. Once vacuum has removed
what that leaves in the index, claims are as cheap as they were. Whoever comes for moved jobs waits for an hour at most.

What somebody else may be there for is let alone. In a mixed fleet another runner may be working off a backlog of a kind
that is unknown here: while one job of the kind runs, none is moved. It may have none in work for a moment, between two
claims or during a restart; hence a kind is moved only when two looks in a row found it idle, and for a minute at first.

The claim itself could stop reading after so many jobs, whatever they are. It does not: behind such a backlog, which is not
moved, this runner's own jobs would then not be found at all; and every claim would pay a sixth more page reads for it.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.events import UnknownKinds, UnknownKindsPostponed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.store.store import Store

#: So many of a queue stay at its head.
KEPT = 1000
#: A look counts among twice as many due jobs: some that are known may stand between them at any moment.
LOOK_LIMIT = 2 * KEPT
#: How often a look is taken, in seconds: claims are slow from the flood until the second look after it.
LOOK_INTERVAL = 5.0
#: Moved in one statement: some 45 ms (156 ms at most among 300), so that no lock is held long.
BATCH = 1000
#: How far a job is moved: at first, and in the end.
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(hours=1)


class UnknownJobs:
    """Looks after the jobs of unknown kinds in the queues of one runner."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry,
        queues: Collection[str],
        runner_id: str,
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._registry = registry
        self._queues = sorted(queues)
        self._runner_id = runner_id
        self._subscribers = subscribers
        self._told: set[str] = set()
        self._idle: set[tuple[str, str]] = set()
        self._moved: dict[str, dict[str, int]] = {}
        self._until: datetime | None = None

    def look(self) -> bool:
        """One look and at most one batch of each queue; whether another should follow at once."""
        unknown = self._store.unknown_kinds(queues=self._queues, kinds=self._registry.kinds, limit=LOOK_LIMIT)
        self._report_kinds(unknown)
        idle: set[tuple[str, str]] = set()
        more = False
        for queue, kinds in unknown.items():
            if sum(kinds.values()) > KEPT:
                behind = self._store.waiting(queue=queue, kinds=list(kinds), passed=KEPT, limit=BATCH)
                idle |= {(queue, kind) for _, kind in behind}
                again = {job_id: kind for job_id, kind in behind if (queue, kind) in self._idle}
                moved = self._postpone(queue, again)
                more |= moved and len(behind) == BATCH
        self._idle = idle
        if not more:
            self._report_moved()
        return more

    def _postpone(self, queue: str, kinds: Mapping[int, str]) -> bool:
        """Move these jobs, given with their kinds; whether any was moved."""
        moved = self._store.postpone(list(kinds), shortest=SHORTEST, longest=LONGEST)
        if moved:
            counts = self._moved.setdefault(queue, defaultdict(int))
            for job_id in moved:
                counts[kinds[job_id]] += 1
            self._until = max([*moved.values(), *([self._until] if self._until else [])])
        return bool(moved)

    def _report_kinds(self, unknown: Mapping[str, Mapping[str, int]]) -> None:
        counts: dict[str, int] = defaultdict(int)
        for kinds in unknown.values():
            for kind, count in kinds.items():
                counts[kind] += count
        if set(counts) - self._told:
            kinds = {kind: counts[kind] for kind in sorted(counts)}
            nearest = {kind: self._registry.nearest(kind) for kind in kinds}
            self._subscribers.emit(UnknownKinds(runner_id=self._runner_id, kinds=kinds, nearest=nearest))
        self._told = set(counts)

    def _report_moved(self) -> None:
        """Once for a whole sweep, however many batches it took."""
        if self._until is None:
            return
        queues = {queue: dict(sorted(kinds.items())) for queue, kinds in sorted(self._moved.items())}
        self._subscribers.emit(
            UnknownKindsPostponed(runner_id=self._runner_id, queues=queues, until=self._until)
        )
        self._moved, self._until = {}, None
