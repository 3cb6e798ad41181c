"""What a runner tells about itself: one frozen value per thing that happened, and who listens.

Code emits events and never logs; logging, metrics and traces are subscribers. Fields have the same names everywhere:
`job_id`, `kind`, `queue`, `attempt`, `runner_id`. No event holds a payload.
"""

from __future__ import annotations

from sa_jobqueue.events.jobs import (
    AnyJobEvent,
    CancelRequested,
    CompletionInDoubt,
    DropCause,
    HandlerTimedOut,
    JobEvent,
    JobFields,
    JobRescued,
    JobSettled,
    JobStarted,
    LeaseLost,
    NewerPayload,
    OutcomeDropped,
    PolicyFault,
    SettleDelayed,
    job_fields,
)
from sa_jobqueue.events.runners import (
    JobsClaimed,
    LoopBlocked,
    LoopFailed,
    LoopRecovered,
    RunnerEvent,
    RunnerStarted,
    RunnerStopped,
    RunnerStopping,
    WakeUpFailed,
)
from sa_jobqueue.events.subscribers import (
    Event,
    Subscriber,
    Subscribers,
)
from sa_jobqueue.events.tables import (
    JobsPruned,
    PruneRefused,
    RowRefused,
    TableEvent,
    UnknownKinds,
    UnknownKindsPostponed,
    UnservedQueues,
)

__all__ = [
    "AnyJobEvent",
    "CancelRequested",
    "CompletionInDoubt",
    "DropCause",
    "Event",
    "HandlerTimedOut",
    "JobEvent",
    "JobFields",
    "JobRescued",
    "JobSettled",
    "JobStarted",
    "JobsClaimed",
    "JobsPruned",
    "LeaseLost",
    "LoopBlocked",
    "LoopFailed",
    "LoopRecovered",
    "NewerPayload",
    "OutcomeDropped",
    "PolicyFault",
    "PruneRefused",
    "RowRefused",
    "RunnerEvent",
    "RunnerStarted",
    "RunnerStopped",
    "RunnerStopping",
    "SettleDelayed",
    "Subscriber",
    "Subscribers",
    "TableEvent",
    "UnknownKinds",
    "UnknownKindsPostponed",
    "UnservedQueues",
    "WakeUpFailed",
    "job_fields",
]
