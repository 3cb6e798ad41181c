"""What a handler is told about the job it runs: plain values, two flags that the runner raises meanwhile, its progress.

No connection and no session lives here, so that a context may be logged, copied and sent to another process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import JobCancelledError, LeaseLostError
from sa_jobqueue.records import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sa_jobqueue.records import ClaimedJob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobContext:
    """One run of one job, as its handler sees it.

    `attempt` counts from 1; starts that were given back (a snooze, a runner that shut down before it began) don't
    count. Pass `idempotency_key` or `id` on to outside services, never the attempt. A copy, also one made by pickle, is
    a snapshot: the runner raises the flags of the original only, and hears of its progress alone.
    """

    id: int
    kind: str
    queue: str
    payload: Any = field(repr=False)
    attempt: int
    max_attempts: int
    idempotency_key: str | None
    run_at: datetime
    created_at: datetime
    runner_id: str
    _lost: bool = field(default=False, init=False, repr=False)
    _cancel_requested: bool = field(default=False, init=False, repr=False)
    _progress: Progress | None = field(default=None, init=False, repr=False)
    _on_progress: Callable[[], object] | None = field(default=None, init=False, repr=False)

    @property
    def lost(self) -> bool:
        """The lease is gone: another runner may have the job, and nothing written for it here will land."""
        return self._lost

    @property
    def cancel_requested(self) -> bool:
        """Somebody asked to cancel the job: stop soon, by `raise_if_cancelled()` or with any outcome.

        A handler that returns as usual is done all the same; whatever else it does, the job is cancelled.
        """
        return self._cancel_requested

    def raise_if_lost(self) -> None:
        """Stop work that can't land any more: raises LeaseLostError once the lease is gone. Never asks the database."""
        if self._lost:
            raise LeaseLostError(
                f"job {self.id} ({self.kind}): the lease is lost, another runner may own the job; stop here, "
                "nothing this run writes to the job can land"
            )

    def raise_if_cancelled(self) -> None:
        """Stop work that nobody wants any more: raises JobCancelledError once somebody asked to cancel the job.

        When the handler lets that error out, the job is cancelled. Never asks the database.
        """
        if self._cancel_requested:
            raise JobCancelledError(f"job {self.id} ({self.kind}): somebody asked to cancel it; stop here")

    def progress(self, fraction: float | None, text: str | None = None) -> None:
        """Say how far the job is: `ctx.progress(0.4, "page 12")`, a share from 0 to 1 (or None), a text, or both.

        Costs next to nothing and asks no database: only the latest call counts, and the runner writes it down with the
        time and the attempt, about once a second at most. A text is cut to 4 KiB. From any thread. The last report stays
        with the job, also after its end and through a retry, until a later attempt reports. Raises ValueError for a share
        outside 0 to 1 and for nothing at all, TypeError for what is no number or no text.
        """
        if fraction is not None:
            if isinstance(fraction, bool) or not isinstance(fraction, int | float):
                raise TypeError(f"progress(): expected a share from 0 to 1 or None, got {fraction!r}")
            if not 0 <= fraction <= 1:
                raise ValueError(f"progress({fraction!r}): a share is from 0 to 1: divide by the whole")
            fraction = float(fraction)
        elif text is None:
            raise ValueError("progress(): nothing to tell: pass a share from 0 to 1, a text, or both")
        if text is not None and not isinstance(text, str):
            raise TypeError(f"progress(text=...): expected a text, got {type(text).__qualname__}")
        object.__setattr__(self, "_progress", Progress(fraction, text))
        if self._on_progress is not None:
            self._on_progress()

    @property
    def latest_progress(self) -> Progress | None:
        """What this run has reported last, None before its first report."""
        return self._progress

    def mark_lost(self) -> None:
        """For the runner, from any thread: the lease is gone, for good."""
        object.__setattr__(self, "_lost", True)

    def mark_cancel_requested(self) -> None:
        """For the runner, from any thread: a renewal brought a cancel request."""
        object.__setattr__(self, "_cancel_requested", True)

    def __getstate__(self) -> list[Any]:
        """What a copy gets, in the order of the fields: nothing that belongs to the runner."""
        own = {"_on_progress": None}
        return [own.get(one.name, getattr(self, one.name)) for one in fields(self)]


def context_of(
    job: ClaimedJob, *, runner_id: str, on_progress: Callable[[], object] | None = None
) -> JobContext:
    """What the handler of a claimed job is told, as the claim found it. For the runner; no handler needs it.

    `on_progress` is called, from any thread, whenever `latest_progress` has changed.
    """
    context = JobContext(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        payload=job.payload,
        attempt=job.counted_attempts,
        max_attempts=job.max_attempts,
        idempotency_key=job.idempotency_key,
        run_at=job.run_at,
        created_at=job.created_at,
        runner_id=runner_id,
    )
    if on_progress is not None:
        object.__setattr__(context, "_on_progress", on_progress)
    return context
