"""Retry policies stay in their bounds for every attempt, and a broken one never stops a failure from being stored."""

from __future__ import annotations

import asyncio
import math
import pickle
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.durations import LONGEST_DELAY
from sa_jobqueue.retry import DEFAULT_RETRY, Decision, decide, delays, exponential, fixed, never

ERROR = ValueError("x")
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
attempts = st.integers(1, 2_000_000_000) | st.sampled_from([1, 2, 40, 300, 1100, 100_000, 2_000_000_000])
durations = st.timedeltas(timedelta(microseconds=1), LONGEST_DELAY)


@given(
    attempt=attempts,
    base=durations,
    factor=st.floats(1, 1e300),
    cap=durations,
    jitter=st.floats(0, 1),
    seed=st.integers(),
)
def test_exponential_never_leaves_its_bounds(
    attempt: int, base: timedelta, factor: float, cap: timedelta, jitter: float, seed: int
) -> None:
    """No attempt number and no setting overflows or gives a delay below zero or above the cap."""
    policy = exponential(base=base, factor=factor, cap=cap, jitter=jitter, random=random.Random(seed).random)
    delay = policy(attempt, ERROR)
    assert delay is not None
    assert timedelta(0) <= delay <= cap


@given(attempt=st.integers(1, 100), base=durations, factor=st.floats(1, 100))
def test_exponential_grows_without_jitter(attempt: int, base: timedelta, factor: float) -> None:
    """A later attempt never waits less than an earlier one."""
    policy = exponential(base=base, factor=factor, cap=LONGEST_DELAY, jitter=0)
    earlier, later = policy(attempt, ERROR), policy(attempt + 1, ERROR)
    assert earlier is not None
    assert later is not None
    assert earlier <= later


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 10), (2, 20), (3, 40), (14, 81_920), (15, 86_400), (2_000_000_000, 86_400)]
)
def test_the_default_doubles_from_ten_seconds_to_a_day(attempt: int, seconds: int) -> None:
    """The numbers that the documentation promises."""
    assert exponential(jitter=0)(attempt, ERROR) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("draw", "first", "last"), [(0.0, 9, 0.9 * 86_400), (0.5, 10, 0.95 * 86_400), (1.0, 11, 86_400)]
)
def test_jitter_spreads_around_the_delay_and_below_the_cap(draw: float, first: float, last: float) -> None:
    """Jobs that failed together come back apart, also when all of them wait for the longest time."""
    policy = exponential(random=lambda: draw)
    assert policy(1, ERROR) == timedelta(seconds=first)
    assert policy(1000, ERROR) == timedelta(seconds=last)


def test_a_base_above_the_cap_is_the_cap() -> None:
    """The cap wins: a large base is no mistake that stops the application at import."""
    assert exponential(base=timedelta(seconds=1e6), jitter=0)(1, ERROR) == DAY


def test_the_same_draws_give_the_same_delays() -> None:
    """A policy has no other source of chance than its argument."""
    one, two = (exponential(random=random.Random(7).random) for _ in range(2))
    assert [one(n, ERROR) for n in range(1, 9)] == [two(n, ERROR) for n in range(1, 9)]


def test_delays_in_order_then_the_last_again() -> None:
    """A list shorter than max_attempts doesn't end the retries."""
    policy = delays([SECOND, 5 * SECOND])
    assert [policy(n, ERROR) for n in (1, 2, 3, 2_000_000_000)] == [SECOND] + [5 * SECOND] * 3


def test_fixed_and_never() -> None:
    """The two simplest policies."""
    assert {fixed(SECOND)(n, ERROR) for n in (1, 7)} == {SECOND}
    assert fixed(timedelta(0))(1, ERROR) == timedelta(0)
    assert never()(1, ERROR) is None


def test_policies_can_be_compared_and_sent_to_another_process() -> None:
    """A policy is a value."""
    for policy in (exponential(), fixed(SECOND), delays([SECOND]), never()):
        assert pickle.loads(pickle.dumps(policy)) == policy
    assert exponential() == DEFAULT_RETRY


@pytest.mark.parametrize(
    "settings",
    [
        {"base": timedelta(0)},
        {"base": -SECOND},
        {"cap": timedelta(0)},
        {"cap": timedelta.max},
        {"factor": 0.5},
        {"factor": math.inf},
        {"factor": math.nan},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    """A policy that can't work fails where it is written."""
    with pytest.raises(ValueError, match="exponential"):
        exponential(**settings)


def test_impossible_delays_are_refused() -> None:
    """The position of a bad delay is named; an empty list says what to use instead."""
    with pytest.raises(ValueError, match="negative"):
        fixed(-SECOND)
    with pytest.raises(TypeError, match=r"delays\(\)\[1\]"):
        delays([SECOND, 5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"never\(\)"):
        delays([])


def raising(error: BaseException) -> Any:
    """A policy with a bug."""

    def policy(attempt: int, failure: BaseException) -> timedelta:
        raise error

    return policy


class Unshowable:
    """A value whose repr fails too."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("attempt", [1, 40, 300, 1100, 100_000, 2_000_000_000])
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (-SECOND, "returned -1 day, 23:59:59"),
        (LONGEST_DELAY + SECOND, "expected 0 to 36525 days"),
        (timedelta.max, "expected 0 to 36525 days"),
        (timedelta.min, "expected 0 to 36525 days"),
        (-1, "returned -1, expected a timedelta or None"),
        (0, "returned 0, expected a timedelta or None"),
        (math.inf, "returned inf"),
        (math.nan, "returned nan"),
        ("10s", "returned '10s'"),
        ("x" * 5_000_000, "returned 'xxx"),
        (Unshowable(), "returned a Unshowable"),
    ],
)
def test_an_unusable_answer_is_replaced_and_told(answer: object, fault: str, attempt: int) -> None:
    """Whatever a user's policy answers, the failure gets a delay within the default's cap and somebody hears of it."""
    decision = decide(lambda _attempt, _error: answer, attempt, ERROR)  # type: ignore[arg-type, return-value]
    assert decision.delay is not None
    assert timedelta(0) <= decision.delay <= DAY
    assert decision.fault is not None
    assert decision.fault.startswith(fault) or fault in decision.fault
    assert len(decision.fault) < 200


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bug"),
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        ValueError("\udcff\0" * 9999),
    ],
)
def test_a_policy_that_raises_is_replaced_and_told(error: BaseException) -> None:
    """No exception comes out of the path that stores a failure."""
    decision = decide(raising(error), 3, ERROR)
    assert decision.delay is not None
    assert SECOND <= decision.delay <= timedelta(minutes=1)
    assert decision.fault is not None
    assert decision.fault.startswith(
        f"raised {type(error).__name__}" if type(error).__module__ == "builtins" else "raised "
    )
    decision.fault.encode("utf-8")


class _Unprintable:
    def __repr__(self) -> str:
        raise SystemExit(1)


class _Incomparable(timedelta):
    def __ge__(self, other: object) -> bool:
        raise SystemExit(1)


@pytest.mark.parametrize("answer", [_Unprintable(), _Incomparable(seconds=1)])
def test_an_answer_that_raises_when_it_is_looked_at_is_replaced(answer: Any) -> None:
    """It is asked by the thread that takes back jobs of lost runners as well, which must not end of it."""
    decision = decide(lambda _attempt, _error: answer, 3, ERROR)
    assert decision.delay is not None
    assert decision.fault


@given(st.timedeltas(timedelta(0), LONGEST_DELAY) | st.none(), attempts)
def test_a_usable_answer_passes_unchanged(answer: timedelta | None, attempt: int) -> None:
    """A policy's own decision, also to give up or to try at once, is what happens."""
    assert decide(lambda _attempt, _error: answer, attempt, ERROR) == Decision(answer)
