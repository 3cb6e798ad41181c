"""One run of a handler in a test, in the calling thread: called as a runner calls it, judged as a runner judges it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.outcomes import Settle
from sa_jobqueue.providers import told
from sa_jobqueue.records import Settlement
from sa_jobqueue.runner.verdict import mistake_in, uncompleted, verdict
from sa_jobqueue.states import CANCELLED_REASON, EXHAUSTED_REASON, JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from datetime import timedelta
    from types import TracebackType

    from sa_jobqueue.completion.owner import Completion
    from sa_jobqueue.context import JobContext
    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import ClaimedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """What became of one run of a job.

    `verb` is how a runner lets the job go, `status` where the job is afterwards: a retry leads to ready, or to dead when
    it was the last attempt. `delay` is the wait before the next run, `reason` why the job is dead or cancelled, `error`
    the text of the failure as it is stored, `exception` the failure itself. `returned` is what the handler returned,
    `fault` what was wrong with its retry policy.
    """

    id: int
    kind: str
    attempt: int
    verb: Verb
    status: JobStatus
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    exception: BaseException | None = None
    returned: Any = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Attempted:
    """What a handler said, and the settlement that a runner would write.

    `completed`: its own completion has done that already, and whatever it says otherwise counts for nothing.
    """

    settlement: Settlement
    returned: object
    raised: BaseException | None
    fault: str | None
    completed: bool = False

    @property
    def error(self) -> BaseException | None:
        """The failure, if it is one: an outcome that was raised is none, nor is an end that was asked for."""
        asked_for = isinstance(self.raised, Settle) or self.settlement.verb is Verb.ABORT
        return None if asked_for else self.raised

    def performed(self, job: ClaimedJob, status: JobStatus, *, fault: str | None = None) -> Performed:
        """The record of it, once it is known where the job is."""
        settlement = self.settlement
        reason = settlement.reason
        if status is JobStatus.DEAD and settlement.verb is Verb.RETRY:
            reason = EXHAUSTED_REASON
        elif status is JobStatus.CANCELLED and settlement.verb is not Verb.ABORT:
            reason = CANCELLED_REASON
        return Performed(
            id=job.id,
            kind=job.kind,
            attempt=job.counted_attempts,
            verb=settlement.verb,
            status=status,
            delay=settlement.delay if status is JobStatus.READY else None,
            reason=reason,
            error=settlement.error,
            exception=self.error,
            returned=self.returned,
            fault=self.fault or fault,
        )


@dataclass(slots=True)
class EventLoop:
    """Where async handlers run: in the loop that is running, or one of our own, made when the first of them comes.

    `advice` is what to write instead where neither is possible.
    """

    advice: str
    _runner: asyncio.Runner | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            self._runner.close()

    def check(self, handler: Handler[..., ..., Any]) -> None:
        """Raise RuntimeError when this handler can't be run from here: its caller forgot to await."""
        if handler.is_async and _loop_is_running() and not _can_await():
            raise RuntimeError(
                f"{handler.kind!r} has an async handler, and an event loop is running in this thread: {self.advice}"
            )

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end, in a task of its own."""
        if _loop_is_running():
            return await_only(asyncio.ensure_future(coroutine))
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)


def attempt(
    job: ClaimedJob,
    handler: Handler[..., ..., Any],
    context: JobContext,
    loop: EventLoop,
    look_back: Callable[[], Completion | None],
    provide: Mapping[Any, Any],
) -> Attempted:
    """Call the handler and judge what it said, and its completion, which `look_back` tells.

    `provide` holds by type what stands in for what the registry provides.

    A failure is an Exception or SystemExit. KeyboardInterrupt, a cancelled task and what pytest raises to end a test
    pass through.
    """
    returned: Any = None
    raised: BaseException | None = None
    try:
        returned = handler.bind_job(context, job, provide)()
        if handler.is_async:
            returned = loop.finish(returned)
    except (Exception, SystemExit) as error:
        raised = error
    completion = look_back()
    if completion is not None and completion.fate is Fate.LANDED:
        done = Settlement(job.id, job.token, Verb.COMPLETE)
        return Attempted(done, returned, raised, None, completed=True)
    if raised is None and completion is not None:
        raised = uncompleted(completion, returned)
    if raised is None:
        raised = mistake_in(returned, handler)
    settlement, fault, _ = verdict(
        job, handler, returned=returned, raised=raised, cancel_requested=context.cancel_requested
    )
    return Attempted(settlement, returned, raised, fault)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _can_await() -> bool:
    try:
        return in_greenlet()
    except (ImportError, ValueError):  # without greenlet nothing async of SQLAlchemy's can be around us
        return False


def check_stand_ins(
    caller: str, provide: Mapping[Any, Any], handlers: Collection[Handler[..., ..., Any]]
) -> None:
    """Raise ValueError for one that no handler would be given: it would get the real thing in its place."""
    for kind in provide:
        if not any(handler.is_given(kind) for handler in handlers):
            raise ValueError(
                f"{caller}(): provide={{{told(kind)}: ...}}: no handler takes that, and nobody provides it: the key is the "
                "type that the parameter is annotated with"
            )
