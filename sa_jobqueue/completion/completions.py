"""What stands behind `ctx.complete()` of the jobs of one runner."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sa_jobqueue.completion.blocks import Block, Terms, check_factory, join
from sa_jobqueue.payloads import encode_result

if TYPE_CHECKING:
    from datetime import timedelta

    from sa_jobqueue.completion.own_sessions import Sessions
    from sa_jobqueue.completion.owner import LeaseOwner
    from sa_jobqueue.records import ClaimedJob


class Completions:
    """Makes completions for the jobs of one owner of leases; from any thread.

    `sessions` are for handlers that bring none. `lease` is how long a job stays claimed without a renewal, and how long a
    client may stay silent after its fence before the server ends it.
    """

    def __init__(self, owner: LeaseOwner, sessions: Sessions, *, lease: timedelta) -> None:
        self._owner = owner
        self._sessions = sessions
        self._lease = lease
        self._process = os.getpid()

    def of(self, job: ClaimedJob) -> JobCompletions:
        """For the context of one claimed job."""
        return JobCompletions(self, job)

    def terms(self, job: ClaimedJob, result: Any) -> Terms:
        """The terms of one completion; TypeError or ValueError for a result that can't be stored.

        RuntimeError in the child of a handler that forks: the connections there are its parent's.
        """
        name = f"job {job.id} ({job.kind})"
        if os.getpid() != self._process:
            raise RuntimeError(
                f"{name}: this process was forked off the one that runs the job, and can't complete it: let the child end, and "
                "complete the job in its parent"
            )
        return Terms(
            (job.id, job.token),
            name,
            self._owner,
            self._sessions,
            self._lease,
            encode_result(result),
            job.idempotency_key if job.key_scope == "unfinished" else None,
        )


class JobCompletions:
    """What the context of one job calls."""

    __slots__ = ("_completions", "_job")

    def __init__(self, completions: Completions, job: ClaimedJob) -> None:
        self._completions = completions
        self._job = job

    def block(self, sessions: Any, result: Any) -> Block:
        """For `with` and `async with`."""
        return Block(self._completions.terms(self._job, result), check_factory(sessions))

    def join(self, session: Any, result: Any) -> Any:
        """In the transaction of a session; a coroutine for an AsyncSession."""
        return join(self._completions.terms(self._job, result), session)
