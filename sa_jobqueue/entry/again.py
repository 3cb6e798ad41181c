"""Job objects that come in a second time: `enqueue_many()` leaves them outside of every session.

Whether their row is there only the database knows, for what was rolled back may well be enqueued again. With a key the
question answers itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.entry.request import request_of
from sa_jobqueue.errors import EnqueueError
from sa_jobqueue.store.inserts import stored_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sa_jobqueue.models import Job


def told_before(job: Job) -> int | None:
    """The id that a job without a key was given by an earlier call, or an earlier flush that was not undone."""
    if (told := job.enqueued) is None or request_of(job).key is not None:
        return None
    return told.id


def refuse_stored(connection: Connection, ids: Sequence[int]) -> None:
    """Raise EnqueueError when one of the rows is there: the same object would make a second job."""
    if there := stored_ids(connection, ids):
        raise EnqueueError(
            f"job {min(there)} is stored already, and this is the object that it was made of: point at it "
            "by its id (job.enqueued.id), or make another job with enqueue()"
        )
