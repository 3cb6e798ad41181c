"""What the runner asks of an executor, and what it hands to one.

An executor takes executions, carries each out once and gives back on request those it has not begun. It knows nothing
of the database; a new kind of executor is one class with these methods.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from sa_jobqueue.completion.owner import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sa_jobqueue.completion.owner import Completion
    from sa_jobqueue.context import JobContext
    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import ClaimedJob, LeaseKey


class Interruption(StrEnum):
    """Why a running handler should end now."""

    TIMEOUT = "timeout"
    CANCEL_REQUESTED = "cancel requested"
    LEASE_LOST = "lease lost"
    SHUTDOWN = "shutdown"


class Execution:
    """One claimed job with its handler and the context that the handler is given.

    `interruption` is the first cause for which the handler was asked to end, None while nobody asked. `timeout` is how
    long the handler may run, for whoever watches it and for the text of its error. `renewed_at`, in monotonic seconds, is
    when the claim or renewal was sent that its lease was last counted from. `completion` is the one that the handler has
    begun in a transaction of its own. `let_go` says that an outcome other than the completion has been written: the job has
    left this runner undone.

    How far the job has come, written by the book alone and behind its lock: `decided` (somebody has the one word about the
    outcome), `settling` (it is being written), `overdue` (not renewed, for its handler is past its timeout), `paused` (not
    renewed for the sake of a completion: one whose transaction bears no renewal, or one that has landed), `fenced` (the
    fence of a completion may have been sent).
    """

    __slots__ = (
        "_cancel",
        "completion",
        "context",
        "decided",
        "fenced",
        "handler",
        "interruption",
        "job",
        "key",
        "let_go",
        "overdue",
        "paused",
        "renewed_at",
        "settling",
        "timeout",
    )

    def __init__(
        self,
        job: ClaimedJob,
        handler: Handler[..., ..., Any],
        context: JobContext,
        *,
        claimed_at: float = 0.0,
    ) -> None:
        self.job: ClaimedJob = job
        self.handler: Handler[..., ..., Any] = handler
        self.context: JobContext = context
        self.key: LeaseKey = (job.id, job.token)
        self.interruption: Interruption | None = None
        self.timeout: timedelta | None = None
        self.renewed_at: float = claimed_at
        self.completion: Completion | None = None
        self.let_go: bool = False
        self.decided: bool = False
        self.settling: bool = False
        self.overdue: bool = False
        self.paused: bool = False
        self.fenced: bool = False
        self._cancel: Callable[[], object] | None = None

    @property
    def renewed(self) -> bool:
        """It takes part in renewals."""
        return not self.overdue and not self.paused

    @property
    def completed(self) -> bool:
        """The handler's own transaction has completed the job: whatever it says afterwards, the job is done."""
        return self.completion is not None and self.completion.fate is Fate.LANDED

    @property
    def doubtful(self) -> bool:
        """The handler's own transaction may have completed the job, or may do so yet: only a fenced write can tell."""
        return (
            self.completion is not None
            and self.fenced
            and self.completion.fate not in (Fate.UNDONE, Fate.LOST)
        )

    def cancel_by(self, cancel: Callable[[], object] | None) -> None:
        """For who carries it out: how any thread has the handler's task cancelled; None once there is nothing to cancel."""
        self._cancel = cancel

    def interrupt(self, cause: Interruption) -> bool:
        """Note the cause, the first one for good, and have the handler's task cancelled. From any thread; never raises.

        One that has not begun will not. False when there is no task: a handler in a thread can't be ended from outside.
        """
        if self.interruption is None:
            self.interruption = cause
        if (cancel := self._cancel) is None:
            return False
        with suppress(RuntimeError):  # its loop has been closed: it has ended
            cancel()
        return True


class Executor(Protocol):
    """What the runner asks of an executor."""

    def start(self) -> None:
        """Be ready to carry out; raises what keeps it from that."""

    def submit(self, executions: Sequence[Execution]) -> None:
        """Carry these out, each once, in order per queue; returns at once and never raises."""

    def take_back(self, queues: Sequence[str]) -> list[Execution]:
        """Give back what was submitted for these queues and has not begun; it never will."""
        ...

    def waiting(self, queue: str) -> int:
        """How many of this queue are in line, submitted and not begun; cheap, and from any thread."""
        ...

    def interrupt(self, execution: Execution, cause: Interruption) -> bool:
        """Make the handler of a submitted execution end soon, where this can be done; returns at once, never raises.

        True when its task is being cancelled; the outcome is still the handler's own to name. One that has not begun
        never will. False for a handler that runs in a thread, and for one that has ended.
        """
        ...

    def stop(self) -> None:
        """Begin nothing more: what waits is let go or can be taken back, what runs goes on. Returns at once."""

    def join(self, timeout: float) -> bool:
        """After `stop`: wait until nothing runs; False when something does after `timeout` seconds."""
        ...
