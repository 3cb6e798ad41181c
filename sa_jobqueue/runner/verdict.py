"""What an attempt amounts to: one `match` from what the handler said to the settlement that is written.

The place to look when an outcome is added. It runs on the handler's thread, so that a slow retry policy or a huge
traceback holds up nobody but its own job.
"""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.durations import format_duration
from sa_jobqueue.errors import JobCancelledError
from sa_jobqueue.failures import describe_error, storable
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.payloads import encode_result
from sa_jobqueue.records import Settlement
from sa_jobqueue.retry import decide
from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.states import CANCELLED_REASON, EXPIRED_REASON, Verb

if TYPE_CHECKING:
    from sa_jobqueue.completion.owner import Completion
    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import ClaimedJob
    from sa_jobqueue.retry import Decision

LOST_ERROR = "the lease was lost before the handler finished"
SHUTDOWN_ERROR = "the runner was shut down before the handler finished"
#: How long a job waits whose payload is newer than the handler here, for a runner with newer code.
NEWER_CODE_WAIT = timedelta(minutes=1)
_AT_ONCE = timedelta(0)
#: How many errors, causes and members of groups, are looked at.
_LONGEST_LOOK = 1000


class Verdict(NamedTuple):
    """What is written of an attempt, what was wrong with the handler's retry policy, and the interruption it came of."""

    settlement: Settlement
    fault: str | None = None
    cause: Interruption | None = None


def verdict(
    job: ClaimedJob,
    handler: Handler[..., ..., Any],
    *,
    returned: object = None,
    raised: BaseException | None = None,
    interruption: Interruption | None = None,
    timeout: timedelta | None = None,
    cancel_requested: bool = False,
    completion: Completion | None = None,
) -> Verdict:
    """What one attempt amounts to.

    `interruption` is why the handler was asked to end meanwhile. It counts where the handler ended because of it: by
    the cancellation, or by an error raised on its way. Whatever else the handler says is its own word: it may have
    finished all the same. A JobCancelledError is no failure where a cancellation was asked for; raised without one it
    is a failure like any other. A return without an outcome after a `completion` that has not landed counts as what ended
    that completion: whoever swallows its error must not have the job done without its effects.
    """
    if completion is not None and raised is None:
        raised = uncompleted(completion, returned)
    if returned is None and raised is None:  # nearly all of them
        return Verdict(Settlement(job.id, job.token, Verb.COMPLETE))
    if cancel_requested and isinstance(raised, JobCancelledError):
        return Verdict(Settlement(job.id, job.token, Verb.ABORT, reason=CANCELLED_REASON))
    if interruption is not None and raised is not None and _came_of_cancellation(raised):
        return _interrupted(job, handler, raised, interruption, timeout)._replace(cause=interruption)
    outcome = raised.outcome if isinstance(raised, Settle) else returned
    cause = raised.__cause__ if isinstance(raised, Settle) else raised
    error = None if cause is None else describe_error(cause)
    match outcome:
        case Retry(after=None, reason=reason):
            # Asked for by the handler: the policy says when, and `permanent` has no say.
            decision = decide(handler.retry, job.counted_attempts, cause or Settle(outcome))
            return _after(decision, job, _joined(reason, error), why="the retry policy gives up")
        case Retry(after=after, reason=reason):
            return Verdict(
                Settlement(job.id, job.token, Verb.RETRY, delay=after, error=_joined(reason, error))
            )
        case Snooze(after):
            return Verdict(Settlement(job.id, job.token, Verb.SNOOZE, delay=after))
        case Discard(reason):
            return Verdict(_discarded(job, reason, error))
        case _ if raised is not None:
            return _failed(job, handler, raised, error)
        case _:
            return _completed(job, handler, returned)


def unstarted(job: ClaimedJob, handler: Handler[..., ..., Any]) -> Settlement | None:
    """What is written of a job whose handler must not be called, None for all others.

    It has expired; or its payload is newer than the handler, as the jobs of new code are for the runners of old code
    during a deploy: then it is put back, and the start doesn't count.
    """
    if job.expired:
        return Settlement(job.id, job.token, Verb.ABORT, reason=EXPIRED_REASON)
    if job.payload_version > handler.payload_version:
        return Settlement(job.id, job.token, Verb.SNOOZE, delay=NEWER_CODE_WAIT)
    return None


def uncompleted(completion: Completion, returned: object) -> BaseException | None:
    """What a return stands for after this completion: its error, None when it has landed or an outcome was returned."""
    if completion.fate is Fate.LANDED or isinstance(returned, Retry | Snooze | Discard):
        return None
    return completion.error or RuntimeError(
        "the handler has ended, and the transaction of its completion has not been committed"
    )


def timeout_error(timeout: timedelta | None) -> TimeoutError:
    """The failure of an attempt that took too long, as its retry policy sees it and as the row tells it."""
    return TimeoutError("timed out" if timeout is None else f"timed out after {format_duration(timeout)}")


def _came_of_cancellation(raised: BaseException) -> bool:
    """Whether it is a cancellation, or an error from its handling; what a handler says by Settle is its own word.

    A TaskGroup that is cancelled raises what its tasks raise on their way out, and hides what it was cancelled by.
    """
    if isinstance(raised, Settle):
        return False
    looked_at, waiting = set[int](), [raised]
    while waiting and len(looked_at) < _LONGEST_LOOK:
        error = waiting.pop()
        if isinstance(error, asyncio.CancelledError):
            return True
        if id(error) not in looked_at:
            looked_at.add(id(error))
            waiting += [cause for cause in (error.__context__, error.__cause__) if cause is not None]
            if isinstance(error, BaseExceptionGroup):
                waiting += error.exceptions
    return False


def _interrupted(
    job: ClaimedJob,
    handler: Handler[..., ..., Any],
    raised: BaseException,
    interruption: Interruption,
    timeout: timedelta | None,
) -> Verdict:
    # An error of the handler's own, from its clean-up, is worth keeping; the cancellation alone says nothing.
    own = None if isinstance(raised, asyncio.CancelledError) else describe_error(raised)
    match interruption:
        case Interruption.TIMEOUT:
            # With the traceback, which tells where the handler was.
            error = timeout_error(timeout).with_traceback(raised.__traceback__)
            return _failed(job, handler, error, _joined(describe_error(error), own))
        case Interruption.CANCEL_REQUESTED if own is None:
            return Verdict(Settlement(job.id, job.token, Verb.ABORT, reason=CANCELLED_REASON))
        case Interruption.CANCEL_REQUESTED:
            # A retry of a job that is to be cancelled cancels it, and keeps the error.
            return Verdict(Settlement(job.id, job.token, Verb.RETRY, delay=_AT_ONCE, error=own))
        case Interruption.SHUTDOWN:
            text = _joined(SHUTDOWN_ERROR, own)
            return Verdict(Settlement(job.id, job.token, Verb.RETRY, delay=_AT_ONCE, error=text))
        case Interruption.LEASE_LOST:  # the token is somebody else's: this lands nowhere
            return Verdict(Settlement(job.id, job.token, Verb.RETRY, delay=_AT_ONCE, error=LOST_ERROR))


def mistake_in(returned: object, handler: Handler[..., ..., Any]) -> Exception | None:
    """The error of a return value that stands for no finished work, or can't be kept as the handler wants it to be."""
    if isinstance(returned, Retry | Snooze | Discard):
        return None
    try:
        _result(returned, handler)
    except (TypeError, ValueError) as error:
        return error
    return None


def _completed(job: ClaimedJob, handler: Handler[..., ..., Any], returned: object) -> Verdict:
    try:
        result = _result(returned, handler)
    except (TypeError, ValueError) as error:
        return _failed(job, handler, error, describe_error(error))
    return Verdict(Settlement(job.id, job.token, Verb.COMPLETE, result=result))


def _result(returned: object, handler: Handler[..., ..., Any]) -> str | None:
    """The JSON text to keep of a return value. Raises TypeError or ValueError for one that can't be."""
    if (mistake := _unfinished(returned)) is not None:
        raise mistake
    if not handler.keep_result:
        return None
    try:
        return encode_result(returned)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"the result of {handler.kind!r} can't be kept (keep_result=True): {error}") from None


def _unfinished(returned: object) -> TypeError | None:
    """The error of a handler whose return value shows that its work was never done, or its outcome never said."""
    if inspect.iscoroutine(returned):
        returned.close()  # or it would warn, some time later, that nobody awaited it
        return TypeError(
            "the handler returned a coroutine, whose body has not run: a decorator hides an async def; "
            "declare the decorator's own function with async def too, and await the handler in it"
        )
    if isinstance(returned, type) and issubclass(returned, Retry | Snooze | Discard):
        return TypeError(
            f"the handler returned the class {returned.__name__}: return {returned.__name__}(...)"
        )
    return None


def _failed(
    job: ClaimedJob, handler: Handler[..., ..., Any], raised: BaseException, error: str | None
) -> Verdict:
    decision = handler.decide(job.counted_attempts, raised)
    return _after(decision, job, error, why=f"no retry after {type(raised).__qualname__}")


def _after(decision: Decision, job: ClaimedJob, error: str | None, *, why: str) -> Verdict:
    if decision.delay is None:
        return Verdict(_discarded(job, why, error), decision.fault)
    settlement = Settlement(job.id, job.token, Verb.RETRY, delay=decision.delay, error=error)
    return Verdict(settlement, decision.fault)


def _discarded(job: ClaimedJob, why: str, error: str | None) -> Settlement:
    return Settlement(job.id, job.token, Verb.DISCARD, error=error, reason=storable(f"discarded: {why}"))


def _joined(reason: str | None, error: str | None) -> str | None:
    return storable("\n".join(part for part in (reason, error) if part)) or None
