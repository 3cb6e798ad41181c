"""What happened to a runner, its loops and its connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStarted:
    """A runner is connected and begins to claim; `queues` maps each queue to how many of its jobs may run at once.

    `executors` maps each queue to the name of its executor.
    """

    runner_id: str
    queues: Mapping[str, int]
    kinds: tuple[str, ...]
    executors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStopping:
    """A runner claims nothing more; it waits up to `grace` for `running` jobs. `cause` is a signal's name or a reason."""

    runner_id: str
    cause: str
    running: int
    grace: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStopped:
    """A runner is through.

    `handed_back` jobs were still running and are ready again; `left_to_leases` could not be written, or were not to be,
    and come back when their leases are over.
    """

    runner_id: str
    exit_code: int
    handed_back: int
    left_to_leases: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsClaimed:
    """One claim that brought jobs: how many of each queue, and how long the statement took."""

    runner_id: str
    queues: Mapping[str, int]
    duration: timedelta

    @property
    def count(self) -> int:
        return sum(self.queues.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked:
    """One handler has kept the event loop from turning for `duration` by now: all others on the loop wait for it.

    Told once for each blocking, while it lasts. `location` is where the loop was then; without a job it was in code that
    no handler has begun.
    """

    runner_id: str
    job_id: int | None = None
    kind: str | None = None
    queue: str | None = None
    attempt: int | None = None
    duration: timedelta
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpFailed:
    """Commits do not wake this runner, it only polls. Told once for each cause.

    "unheard": it listens and hears nothing, most often through a transaction pooler, where it stops listening; without a
    pooler it tries again every minute. "refused": the database does not let it say that it waits, and `fault` tells why;
    it tries again every minute.
    """

    runner_id: str
    cause: Literal["unheard", "refused"]
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFailed:
    """One of the runner's loops failed for the `failures`-th time in a row and tries again after `retry_in`.

    None means that it can't go on, and the runner ends.
    """

    runner_id: str
    loop: str
    error: str
    failures: int
    retry_in: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRecovered:
    """A loop works again; its first failure was `after` ago."""

    runner_id: str
    loop: str
    failures: int
    after: timedelta


RunnerEvent = (
    RunnerStarted
    | RunnerStopping
    | RunnerStopped
    | JobsClaimed
    | LoopBlocked
    | WakeUpFailed
    | LoopFailed
    | LoopRecovered
)
