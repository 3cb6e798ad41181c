"""What a runner found in the tables that is worth telling: jobs that were pruned, refused, unknown, not served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sa_jobqueue.states import JobStatus, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPruned:
    """A sweep deleted jobs of one status that were kept for as long as the retention says."""

    runner_id: str
    status: JobStatus
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRefused:
    """The database keeps jobs that are past their retention: so many so far, for the first of them because of `fault`.

    Most often an application's foreign key without ON DELETE. Told when it changes; they are tried again now and then.
    """

    runner_id: str
    status: JobStatus
    count: int
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRefused:
    """The database lets nobody do this to a job's row (somebody's trigger, for example), and `fault` tells why.

    Verbs: claim, release (of a claim whose answer was lost), renew, rescue. Told once for each job and verb; the job is
    tried again and again, its neighbours go on. An outcome that is refused is told by SettleDelayed or JobSettled.
    """

    runner_id: str
    job_id: int
    verb: Verb
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKinds:
    """Due jobs in this runner's queues that it has no handler for: how many of each kind, among a queue's first 2,000.

    Told when another kind joins. They wait for a runner that knows them; see `UnknownKindsPostponed` for a crowd.
    """

    runner_id: str
    kinds: Mapping[str, int]
    nearest: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKindsPostponed:
    """More than 1,000 due jobs that this runner has no handler for stood in a queue, and nobody had such a job in work.

    Those behind the first 1,000 are due later, the last of them at `until` by the database's clock: how many of each kind
    in each queue. Nothing else of them has changed. Told once for every sweep that moved some.
    """

    runner_id: str
    queues: Mapping[str, Mapping[str, int]]
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedQueues:
    """Due jobs that this runner has a handler for, in queues that it does not serve: how many of each kind in each.

    Another runner may serve them.
    """

    runner_id: str
    queues: Mapping[str, Mapping[str, int]]


TableEvent = JobsPruned | PruneRefused | RowRefused | UnknownKinds | UnknownKindsPostponed | UnservedQueues
