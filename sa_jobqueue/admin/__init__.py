"""What people look at and do to jobs, inside the caller's transaction.

    page = admin.list_jobs(session, statuses=["dead"])  # frozen records, the newest first
    results = admin.redrive(session, [7, 8])            # Session, scoped_session or Connection
    results = await admin.cancel(async_session, [7])    # their async twins

Unlike a runner's verbs those for people prove nothing but the id. The caller commits.
"""

from __future__ import annotations

from sa_jobqueue.admin.pruning import count_prunable, prune
from sa_jobqueue.admin.reading import get_job, list_jobs, stats
from sa_jobqueue.admin.verbs import cancel, redrive, reschedule
from sa_jobqueue.records import OperatorResult, Pruned, PrunePosition
from sa_jobqueue.views import JobDetails, JobError, JobPage, JobProgress, JobSummary, QueueStats, Stats

__all__ = [
    "JobDetails",
    "JobError",
    "JobPage",
    "JobProgress",
    "JobSummary",
    "OperatorResult",
    "PrunePosition",
    "Pruned",
    "QueueStats",
    "Stats",
    "cancel",
    "count_prunable",
    "get_job",
    "list_jobs",
    "prune",
    "redrive",
    "reschedule",
    "stats",
]
