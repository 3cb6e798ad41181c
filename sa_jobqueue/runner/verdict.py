"""What an attempt amounts to: one `match` from what the handler said to the settlement that is written.

The place to look when an outcome is added. It runs on the handler's thread, so that a slow retry policy or a huge
traceback holds up nobody but its own job.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from sa_jobqueue.failures import describe_error, storable
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.records import Settlement
from sa_jobqueue.retry import decide
from sa_jobqueue.states import Verb

if TYPE_CHECKING:
    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import ClaimedJob
    from sa_jobqueue.retry import Decision

EXPIRED_REASON = "expired"
SHUTDOWN_ERROR = "the runner was shut down before the handler finished"


def verdict(
    job: ClaimedJob,
    handler: Handler[..., ..., Any],
    *,
    returned: object = None,
    raised: BaseException | None = None,
) -> tuple[Settlement, str | None]:
    """The settlement of one attempt, and what was wrong with the handler's retry policy, if anything."""
    if returned is None and raised is None:  # nearly all of them
        return Settlement(job.id, job.token, Verb.COMPLETE), None
    outcome = raised.outcome if isinstance(raised, Settle) else returned
    cause = raised.__cause__ if isinstance(raised, Settle) else raised
    error = None if cause is None else describe_error(cause)
    match outcome:
        case Retry(after=None, reason=reason):
            # Asked for by the handler: the policy says when, and `permanent` has no say.
            decision = decide(handler.retry, job.counted_attempts, cause or Settle(outcome))
            return _after(decision, job, _joined(reason, error), why="the retry policy gives up")
        case Retry(after=after, reason=reason):
            return Settlement(job.id, job.token, Verb.RETRY, delay=after, error=_joined(reason, error)), None
        case Snooze(after):
            return Settlement(job.id, job.token, Verb.SNOOZE, delay=after), None
        case Discard(reason):
            return _discarded(job, reason, error), None
        case _ if raised is not None:
            return _failed(job, handler, raised, error)
        case _ if (mistake := unfinished(returned)) is not None:
            return _failed(job, handler, mistake, describe_error(mistake))
        case _:
            return Settlement(job.id, job.token, Verb.COMPLETE), None


def unfinished(returned: object) -> TypeError | None:
    """The error of a handler whose return value shows that its work was never done, or its outcome never said."""
    if inspect.iscoroutine(returned):
        returned.close()  # or it would warn, some time later, that nobody awaited it
        return TypeError(
            "the handler returned a coroutine, whose body has not run: a decorator hides an async def; "
            "run it in the decorator (asyncio.run), or declare the handler with def"
        )
    if isinstance(returned, type) and issubclass(returned, Retry | Snooze | Discard):
        return TypeError(
            f"the handler returned the class {returned.__name__}: return {returned.__name__}(...)"
        )
    return None


def _failed(
    job: ClaimedJob, handler: Handler[..., ..., Any], raised: BaseException, error: str | None
) -> tuple[Settlement, str | None]:
    decision = handler.decide(job.counted_attempts, raised)
    return _after(decision, job, error, why=f"no retry after {type(raised).__qualname__}")


def _after(
    decision: Decision, job: ClaimedJob, error: str | None, *, why: str
) -> tuple[Settlement, str | None]:
    if decision.delay is None:
        return _discarded(job, why, error), decision.fault
    return Settlement(job.id, job.token, Verb.RETRY, delay=decision.delay, error=error), decision.fault


def _discarded(job: ClaimedJob, why: str, error: str | None) -> Settlement:
    return Settlement(job.id, job.token, Verb.DISCARD, error=error, reason=storable(f"discarded: {why}"))


def _joined(reason: str | None, error: str | None) -> str | None:
    return storable("\n".join(part for part in (reason, error) if part)) or None
