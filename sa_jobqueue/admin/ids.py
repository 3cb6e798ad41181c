"""Ids of jobs as callers pass them: checked before anything is sent, for an error would spoil the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sa_jobqueue.models import Job


def checked(caller: str, ids: Any) -> list[int]:
    """Each id once, in the order given. Raises TypeError, naming the `caller`, for anything that is no int."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise TypeError(
            f"{caller}(): expected an iterable of job ids, got {type(ids).__qualname__}: pass a list"
        )
    return list(dict.fromkeys(checked_one(caller, job_id) for job_id in ids))


def checked_one(caller: str, job_id: Any) -> int:
    """One id. Raises as `checked` does."""
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        advice = ": pass its id" if isinstance(job_id, Job) else ""
        raise TypeError(f"{caller}(): expected ids of jobs (int), got {type(job_id).__qualname__}{advice}")
    return int(job_id)
