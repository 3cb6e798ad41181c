"""What people do to jobs: cancel, redrive, reschedule, inside the caller's transaction.

    results = admin.redrive(session, [7, 8])            # Session, scoped_session or Connection
    results = await admin.cancel(async_session, [7])    # their async twins

Unlike a runner's verbs these prove nothing but the id. The caller commits.
"""

from __future__ import annotations

from sa_jobqueue.admin.verbs import cancel, redrive, reschedule
from sa_jobqueue.records import OperatorResult

__all__ = ["OperatorResult", "cancel", "redrive", "reschedule"]
