"""From what a handler says to the settlement: one table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sa_jobqueue.errors import JobCancelledError
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.records import Settlement
from sa_jobqueue.retry import RetryPolicy, fixed, never
from sa_jobqueue.runner.verdict import verdict
from sa_jobqueue.states import Verb
from tests.support.executions import claimed_job, handler

_POLICY = fixed(timedelta(minutes=1))
ASKED = {"cancel_requested": True}
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def _verdict(*, retry: RetryPolicy = _POLICY, **said: Any) -> Settlement:
    job = claimed_job(attempts=3, returned=1)
    settlement, fault = verdict(job, handler(retry=retry), **said)
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
    settlement, fault = verdict(claimed_job(), handler(retry=policy), raised=ValueError("x"))
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
    settlement, _ = verdict(job, handler(retry=_POLICY, permanent=(Exception,)), returned=Retry())
    assert (settlement.verb, settlement.delay) == (Verb.RETRY, MINUTE)
    settlement, _ = verdict(job, handler(retry=never()), returned=Retry())
    assert (settlement.verb, settlement.reason) == (Verb.DISCARD, "discarded: the retry policy gives up")
