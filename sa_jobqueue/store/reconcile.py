"""Why did a fenced write leave a row out? One read without a lock, and the words for what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.queries import held
from sa_jobqueue.records import Landing
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sa_jobqueue.store.own_connection import OwnConnection

#: The status column's words as members, cheaper than the enum's own look-up.
STATUSES: Mapping[str, JobStatus] = {str(status): status for status in JobStatus}


def misses(
    connection: OwnConnection, missing: Sequence[tuple[int, UUID]], *, needs_lease: bool = False
) -> dict[tuple[int, UUID], Landing]:
    """Classify ids and tokens that a first try did not reach.

    Still ours: expired when the write needs a lease that is past, otherwise busy (somebody else has the row locked, or
    had a moment ago). Not ours any more: lost, or gone without a row. Some busy rows are nobody's fault: a claim that
    began before the claim of this job was committed locks the new row while it finds that it is not ready any more
    (four in a thousand, with three runners emptying one queue); they are free again when that claim has ended.
    """
    rows = {row[0]: row for row in connection.rows(held.owners(), {"ids": [job_id for job_id, _ in missing]})}
    found = {}
    for job_id, token in missing:
        row = rows.get(job_id)
        if row is None:
            landing = Landing.GONE
        elif row[1] != token:
            landing = Landing.LOST
        elif needs_lease and row[2]:
            landing = Landing.EXPIRED
        else:
            landing = Landing.BUSY
        found[job_id, token] = landing
    return found
