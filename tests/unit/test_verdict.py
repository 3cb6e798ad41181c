"""From what a handler says to the settlement: one table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.errors import JobCancelledError
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.records import Settlement
from sa_jobqueue.retry import RetryPolicy, fixed, never
from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.runner.verdict import LOST_ERROR, SHUTDOWN_ERROR, verdict
from sa_jobqueue.states import Verb
from tests.support.executions import claimed_job, handler

_POLICY = fixed(timedelta(minutes=1))
ASKED = {"cancel_requested": True}
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def _verdict(*, retry: RetryPolicy = _POLICY, **said: Any) -> Settlement:
    job = claimed_job(attempts=3, returned=1)
    settlement, fault, _ = verdict(job, handler(retry=retry), **said)
    assert fault is None
    assert (settlement.id, settlement.token) == (job.id, job.token)
    return settlement


def _caused(outcome: Any) -> Settle:
    settle = Settle(outcome)
    settle.__cause__ = ValueError("the cause")
    return settle


@pytest.mark.parametrize(
    ("said", "verb", "delay", "reason", "error"),
    [
        ({"returned": None}, Verb.COMPLETE, None, None, None),
        ({"returned": {"a": 1}}, Verb.COMPLETE, None, None, None),
        ({"returned": Snooze(HOUR)}, Verb.SNOOZE, HOUR, None, None),
        ({"raised": Settle(Snooze(HOUR))}, Verb.SNOOZE, HOUR, None, None),
        ({"returned": Discard("why")}, Verb.DISCARD, None, "discarded: why", None),
        ({"raised": _caused(Discard("why"))}, Verb.DISCARD, None, "discarded: why", "ValueError: the cause"),
        ({"returned": Retry(HOUR)}, Verb.RETRY, HOUR, None, None),
        ({"returned": Retry(HOUR, "busy")}, Verb.RETRY, HOUR, None, "busy"),
        ({"raised": _caused(Retry(HOUR, "busy"))}, Verb.RETRY, HOUR, None, "busy\nValueError: the cause"),
        ({"returned": Retry()}, Verb.RETRY, MINUTE, None, None),
        ({"raised": ValueError("x")}, Verb.RETRY, MINUTE, None, "ValueError: x"),
        ({"raised": KeyboardInterrupt()}, Verb.RETRY, MINUTE, None, "KeyboardInterrupt"),
        ({"raised": SystemExit(1)}, Verb.RETRY, MINUTE, None, "SystemExit: 1"),
        (ASKED | {"raised": JobCancelledError("stop")}, Verb.ABORT, None, "cancelled", None),
        (
            {"raised": JobCancelledError("stop")},
            Verb.RETRY,
            MINUTE,
            None,
            "sa_jobqueue.errors.JobCancelledError: stop",
        ),
        (ASKED | {"raised": ValueError("x")}, Verb.RETRY, MINUTE, None, "ValueError: x"),
        (ASKED | {"returned": None}, Verb.COMPLETE, None, None, None),
        (ASKED | {"returned": Retry(HOUR, "busy")}, Verb.RETRY, HOUR, None, "busy"),
    ],
)
def test_what_is_said_and_what_is_written(
    said: dict[str, Any], verb: Verb, delay: timedelta | None, reason: str | None, error: str | None
) -> None:
    """Every outcome, returned or raised, becomes one settlement of the attempt's own token."""
    settlement = _verdict(**said)
    assert (settlement.verb, settlement.delay, settlement.reason) == (verb, delay, reason)
    assert settlement.error == error


def test_a_policy_that_gives_up_is_final() -> None:
    """No retry means dead, with the type of the error as the reason."""
    settlement = _verdict(raised=ValueError("x"), retry=never())
    assert (settlement.verb, settlement.reason) == (Verb.DISCARD, "discarded: no retry after ValueError")
    assert settlement.error == "ValueError: x"


def test_the_policy_is_asked_for_the_attempts_that_count() -> None:
    """What was given back doesn't lengthen the backoff."""
    asked: list[tuple[int, str]] = []

    def policy(attempt: int, error: BaseException) -> timedelta:
        asked.append((attempt, type(error).__name__))
        return MINUTE

    _verdict(raised=ValueError(), retry=policy)
    _verdict(returned=Retry(), retry=policy)
    assert asked == [(2, "ValueError"), (2, "Settle")]


def _raising(_attempt: int, _error: BaseException) -> timedelta:
    raise SystemExit


@pytest.mark.parametrize("policy", [_raising, lambda _a, _e: float("nan"), lambda _a, _e: timedelta(-1)])
def test_a_broken_policy_never_costs_the_verdict(policy: Callable[..., Any]) -> None:
    """The default's delay is written instead, and the fault is told."""
    settlement, fault, _ = verdict(claimed_job(), handler(retry=policy), raised=ValueError("x"))
    assert settlement.verb is Verb.RETRY
    assert settlement.delay is not None
    assert settlement.delay >= timedelta(0)
    assert fault


async def _coroutine() -> None: ...


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (_coroutine, "the handler returned a coroutine"),
        (lambda: Retry, r"returned the class Retry: return Retry(...)"),
        (lambda: Snooze, r"returned the class Snooze: return Snooze(...)"),
    ],
)
def test_work_that_was_never_done_is_no_success(returned: Callable[[], Any], words: str) -> None:
    """A coroutine that a decorator let slip, or an outcome's class in the place of an outcome, is a failure."""
    settlement = _verdict(returned=returned())
    assert settlement.verb is Verb.RETRY
    assert words in str(settlement.error)


def test_a_retry_that_is_asked_for_is_no_permanent_error() -> None:
    """`permanent` is about errors; a handler that returns Retry() has said that another attempt may succeed."""
    job = claimed_job(attempts=3, returned=1)
    settlement, _, _ = verdict(job, handler(retry=_POLICY, permanent=(Exception,)), returned=Retry())
    assert (settlement.verb, settlement.delay) == (Verb.RETRY, MINUTE)
    settlement, _, _ = verdict(job, handler(retry=never()), returned=Retry())
    assert (settlement.verb, settlement.reason) == (Verb.DISCARD, "discarded: the retry policy gives up")


def _while_cancelled(error: BaseException) -> BaseException:
    """The error, raised while a cancellation was handled."""
    try:
        try:
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            raise error  # noqa: B904 - its context is the point
    except BaseException as raised:
        return raised


CANCELLED = asyncio.CancelledError()


@pytest.mark.parametrize(
    ("cause", "raised", "verb", "delay", "reason", "error"),
    [
        (Interruption.TIMEOUT, CANCELLED, Verb.RETRY, MINUTE, None, "TimeoutError: timed out after 30s"),
        (Interruption.CANCEL_REQUESTED, CANCELLED, Verb.ABORT, None, "cancelled", None),
        (Interruption.SHUTDOWN, CANCELLED, Verb.RETRY, timedelta(0), None, SHUTDOWN_ERROR),
        (Interruption.LEASE_LOST, CANCELLED, Verb.RETRY, timedelta(0), None, LOST_ERROR),
        (None, CANCELLED, Verb.RETRY, MINUTE, None, "asyncio.exceptions.CancelledError"),
        # An error of the handler's own that has nothing to do with it.
        (Interruption.SHUTDOWN, ValueError("x"), Verb.RETRY, MINUTE, None, "ValueError: x"),
        (Interruption.TIMEOUT, ValueError("x"), Verb.RETRY, MINUTE, None, "ValueError: x"),
        # What it says by Settle is its own word.
        (Interruption.SHUTDOWN, Settle(Snooze(HOUR)), Verb.SNOOZE, HOUR, None, None),
    ],
)
def test_why_a_cancelled_handler_ended(
    cause: Interruption | None,
    raised: BaseException,
    verb: Verb,
    delay: timedelta | None,
    reason: str | None,
    error: str | None,
) -> None:
    """The cause says what becomes of the job; without one a cancellation is a failure like any other."""
    said = {"raised": raised, "interruption": cause, "timeout": timedelta(seconds=30)}
    settlement = _verdict(**said)
    assert (settlement.verb, settlement.delay, settlement.reason, settlement.error) == (
        verb,
        delay,
        reason,
        error,
    )


@pytest.mark.parametrize("cause", list(Interruption))
def test_an_outcome_that_is_returned_stands_whatever_was_asked(cause: Interruption) -> None:
    """A handler that finishes although it was cancelled has finished."""
    assert _verdict(returned=None, interruption=cause).verb is Verb.COMPLETE
    assert _verdict(returned=Discard("why"), interruption=cause).verb is Verb.DISCARD


@pytest.mark.parametrize(
    ("cause", "delay", "first"),
    [
        (Interruption.TIMEOUT, MINUTE, "TimeoutError: timed out"),
        (Interruption.CANCEL_REQUESTED, timedelta(0), "ValueError: while cleaning up"),
        (Interruption.SHUTDOWN, timedelta(0), SHUTDOWN_ERROR),
    ],
)
def test_an_error_on_the_way_out_is_kept(cause: Interruption, delay: timedelta, first: str) -> None:
    """It came of the cancellation, so the cause decides; what it says is worth reading all the same."""
    error = _while_cancelled(ValueError("while cleaning up"))
    settlement = _verdict(raised=error, interruption=cause)
    assert (settlement.verb, settlement.delay) == (Verb.RETRY, delay)
    assert settlement.error is not None
    assert settlement.error.startswith(first)
    assert "ValueError: while cleaning up" in settlement.error


def test_a_timeout_is_an_error_that_a_handler_can_call_permanent() -> None:
    """It goes through the retry policy as TimeoutError, with the place where the handler was."""
    raised = _while_cancelled(asyncio.CancelledError())
    settlement, _, _ = verdict(
        claimed_job(),
        handler(permanent=(TimeoutError,)),
        raised=raised,
        interruption=Interruption.TIMEOUT,
        timeout=timedelta(seconds=30),
    )
    assert (settlement.verb, settlement.reason) == (Verb.DISCARD, "discarded: no retry after TimeoutError")
    assert "in _while_cancelled" in (settlement.error or "")


def test_the_interruption_that_an_outcome_came_of_is_told() -> None:
    """Whether a job was handed back is told by this, so what a handler says in its own words must not pass for it."""

    def cause(interruption: Interruption | None, **said: Any) -> Interruption | None:
        return verdict(claimed_job(), handler(), interruption=interruption, **said).cause

    for interruption in Interruption:
        assert cause(interruption, raised=CANCELLED) is interruption
        assert cause(interruption, returned=Retry(reason=SHUTDOWN_ERROR)) is None
        assert cause(interruption, raised=ValueError(SHUTDOWN_ERROR)) is None
        assert cause(interruption) is None
    assert cause(None, raised=CANCELLED) is None


def _completion(fate: Fate, error: BaseException | None = None) -> Completion:
    completion = Completion((7, UUID(int=7)))
    completion.fate, completion.error = fate, error
    return completion


_NOT_LANDED = [Fate.OPEN, Fate.UNDONE, Fate.LOST, Fate.DOUBTFUL]


@pytest.mark.parametrize("fate", _NOT_LANDED)
@pytest.mark.parametrize("returned", [None, {"a": 1}])
def test_a_return_after_a_completion_that_has_not_landed_is_its_failure(fate: Fate, returned: Any) -> None:
    """Somebody swallowed the error: the job must not be done without what the completion was to write."""
    failed = _completion(fate, ValueError("the commit failed"))
    settlement = _verdict(returned=returned, completion=failed)
    assert (settlement.verb, settlement.delay) == (Verb.RETRY, MINUTE)
    assert settlement.error == "ValueError: the commit failed"
    open_still = _verdict(returned=returned, completion=_completion(fate))
    assert open_still.verb is Verb.RETRY
    assert "has not been committed" in (open_still.error or "")


def test_the_failure_of_a_completion_goes_by_the_rules_of_the_handler() -> None:
    """A permanent error is dead at once, an outcome that was raised is that outcome, a cancellation cancels."""
    permanent = handler(permanent=(ValueError,))
    failed = _completion(Fate.UNDONE, ValueError())
    assert verdict(claimed_job(), permanent, completion=failed).settlement.verb is Verb.DISCARD
    raised = _completion(Fate.UNDONE, Settle(Snooze(HOUR)))
    assert _verdict(completion=raised).verb is Verb.SNOOZE
    cancelled = _completion(Fate.UNDONE, JobCancelledError("stop"))
    assert _verdict(completion=cancelled, **ASKED).verb is Verb.ABORT
    interrupted = _completion(Fate.DOUBTFUL, asyncio.CancelledError())
    shut_down = _verdict(completion=interrupted, interruption=Interruption.SHUTDOWN)
    assert (shut_down.verb, shut_down.error) == (Verb.RETRY, SHUTDOWN_ERROR)


@pytest.mark.parametrize("fate", _NOT_LANDED)
def test_what_a_handler_says_itself_after_a_failed_completion_counts(fate: Fate) -> None:
    """It knows of the failure and asks for something: only a done job it can't have."""
    failed = _completion(fate, ValueError("the commit failed"))
    for returned, verb in [
        (Retry(HOUR), Verb.RETRY),
        (Snooze(HOUR), Verb.SNOOZE),
        (Discard("no"), Verb.DISCARD),
    ]:
        assert _verdict(returned=returned, completion=failed).verb is verb
    assert _verdict(raised=KeyError("x"), completion=failed).error == "KeyError: 'x'"


def test_a_completion_that_has_landed_leaves_the_verdict_alone() -> None:
    """What it makes of it is told, and never written."""
    landed = _completion(Fate.LANDED)
    assert _verdict(completion=landed).verb is Verb.COMPLETE
    assert _verdict(raised=ValueError("x"), completion=landed).error == "ValueError: x"
