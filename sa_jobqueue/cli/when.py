"""Times for people, relative to the database's clock: "in 5m", "3m ago"."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.durations import format_duration
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from datetime import datetime

    from sa_jobqueue.views import JobSummary

_SECOND = timedelta(seconds=1)


def span(duration: timedelta) -> str:
    """A duration in whole seconds or larger parts, "0s" for less than one."""
    return format_duration(timedelta(seconds=abs(duration) // _SECOND))


def relative(moment: datetime, now: datetime) -> str:
    """ "in 5m", "3m ago", or "now" within a second."""
    if abs(moment - now) < _SECOND:
        return "now"
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def exact(moment: datetime | None, now: datetime) -> str | None:
    """The time itself, in UTC, and how far away it is."""
    if moment is None:
        return None
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({relative(moment, now)})"


def when(job: JobSummary, now: datetime) -> str:
    """What a list says about a job's time: when it is due, who runs it and until when, or when it finished."""
    match job.status:
        case JobStatus.READY:
            waited = now - job.run_at
            return f"due {span(waited)}" if waited >= timedelta(0) else relative(job.run_at, now)
        case JobStatus.RUNNING if job.lease_until is not None:
            left = job.lease_until - now
            lease = f"lease {span(left)}" if left > timedelta(0) else f"lease past {span(left)}"
            return f"{job.leased_by or 'nobody'}, {lease}"
        case _:
            return relative(job.finished_at or job.updated_at, now)
