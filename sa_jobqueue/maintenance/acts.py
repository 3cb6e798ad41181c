"""The duties themselves: rescue of jobs whose runner is gone, and a word about jobs that nobody may be there for.

The prune has a module of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.events import JobRescued, UnservedQueues, job_fields
from sa_jobqueue.maintenance import unknown
from sa_jobqueue.maintenance.duties import Connect, Connected, Do, Done, Duty
from sa_jobqueue.maintenance.prune import Pruning
from sa_jobqueue.retry import DEFAULT_RETRY, decide

if TYPE_CHECKING:
    from collections.abc import Collection

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.records import ExpiredLease
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.retention import Retention
    from sa_jobqueue.store.store import Store

#: Rescued in one statement: small, so that no lock is held long.
RESCUE_LIMIT = 100
#: When a rescued job is due whose handler's policy never retries.
RESCUE_DELAY = timedelta(seconds=10)
#: How often jobs in unserved queues are looked for, in seconds, and how many of a queue are counted at most.
LOOK_INTERVAL, LOOK_LIMIT = 60.0, 1000


class Maintenance:
    """Does the duties of one runner on a store of its own."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry,
        queues: Collection[str],
        lease: timedelta,
        margin: timedelta,
        retention: Retention,
        runner_id: str,
        subscribers: Subscribers,
    ) -> None:
        self._store = store
        self._registry = registry
        self._queues = queues
        self._lease = lease
        self._margin = margin
        self._runner_id = runner_id
        self._subscribers = subscribers
        self._pruning = Pruning(store, retention=retention, runner_id=runner_id, subscribers=subscribers)
        self._unknown = unknown.UnknownJobs(
            store, registry=registry, queues=queues, runner_id=runner_id, subscribers=subscribers
        )
        self._unserved: set[tuple[str, str]] = set()
        self._passed = 0

    @staticmethod
    def duties(*, rescue_interval: timedelta, prune_interval: timedelta) -> tuple[Duty, ...]:
        """What is due how often."""
        return (
            Duty("rescue", rescue_interval.total_seconds(), gentle=True),
            Duty("unknown kinds", unknown.LOOK_INTERVAL),
            Duty("unserved queues", LOOK_INTERVAL),
            Duty("prune", prune_interval.total_seconds()),
        )

    def perform(self, action: Connect | Do) -> Connected | Done:
        """Do one duty once, or make sure that the database answers."""
        match action:
            case Connect():
                self._store.installed_version()
                return Connected()
            case Do("rescue"):
                return Done(action.name, self._rescue())
            case Do("prune"):
                return Done(action.name, self._pruning.batch())
            case Do("unknown kinds"):
                return Done(action.name, self._unknown.look())
            case Do("unserved queues"):
                self._report_unserved_queues()
                return Done(action.name, more=False)
            case Do(name):
                raise LookupError(f"no such duty: {name!r}")

    def _rescue(self) -> bool:
        """One page of a sweep; whether another follows.

        What could not be taken (locked, or refused by the database) stays in the list: the next page begins behind
        it, so that it hides nobody, and the sweep after this one tries it again.
        """
        leases = self._store.expired_leases(
            lease=self._lease, margin=self._margin, limit=RESCUE_LIMIT, passed=self._passed
        )
        rescued = self._store.rescue([(lease, self._backoff(lease)) for lease in leases], margin=self._margin)
        for job in rescued:
            self._subscribers.emit(JobRescued(**job_fields(job), status=job.status, leased_by=job.leased_by))
        more = len(leases) >= RESCUE_LIMIT
        self._passed = self._passed + len(leases) - len(rescued) if more else 0
        return more

    def _backoff(self, lease: ExpiredLease) -> timedelta:
        """The handler's own backoff; a policy that gives up after an error of the job's is not asked to judge ours."""
        handler = self._registry.find(lease.kind)
        policy = DEFAULT_RETRY if handler is None else handler.retry
        error = LeaseLostError(f"runner {lease.leased_by} was lost")
        decision = decide(policy, lease.counted_attempts, error)
        return RESCUE_DELAY if decision.delay is None else decision.delay

    def _report_unserved_queues(self) -> None:
        unserved = self._store.unserved(
            queues=sorted(self._queues), kinds=self._registry.kinds, limit=LOOK_LIMIT
        )
        # Told again when another queue or kind joins: the counts change all the time where others serve those queues.
        told = {(queue, kind) for queue, kinds in unserved.items() for kind in kinds}
        if told - self._unserved:
            self._subscribers.emit(UnservedQueues(runner_id=self._runner_id, queues=unserved))
        self._unserved = told
