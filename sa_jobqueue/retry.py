"""When a failed attempt is tried again: policies, and the one place that asks them.

A policy is any callable `(attempt, error) -> timedelta | None`; None gives up. Policies say *when*, never write
anything, and read no clock: the delay is added to the database's. Randomness comes in through an argument.
"""

from __future__ import annotations

import math
import random as _random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from sa_jobqueue.durations import LONGEST_DELAY, check_delay
from sa_jobqueue.failures import headline, storable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class RetryPolicy(Protocol):
    """How long to wait before the next attempt, or None to give up; `attempt` is 1 at the first failure."""

    def __call__(self, attempt: int, error: BaseException, /) -> timedelta | None: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a failed attempt: `delay` until the next one, or None when there shall be none.

    `fault` says what was wrong with the policy when its own answer could not be used and the default stood in.
    """

    delay: timedelta | None
    fault: str | None = None


def _chance() -> float:
    """The process's own randomness: a policy that was pickled draws anew where it arrives."""
    return _random.random()  # noqa: S311 - spreads load, keeps no secret


@dataclass(frozen=True, slots=True)
class _Exponential:
    base: timedelta
    factor: float
    cap: timedelta
    jitter: float
    random: Callable[[], float]

    def __call__(self, attempt: int, error: BaseException, /) -> timedelta:  # noqa: ARG002 - any error, same delay
        cap = self.cap.total_seconds()
        seconds = min(self.base.total_seconds(), cap)
        # Compared as logarithms: the power itself leaves the range of floats long before max_attempts ends.
        doublings = (max(attempt, 1) - 1) * math.log2(self.factor)
        seconds = cap if doublings >= math.log2(cap / seconds) else seconds * 2.0**doublings
        # Spread below the cap too, or all that waited long would come back in the same second.
        low, high = seconds * (1 - self.jitter), min(seconds * (1 + self.jitter), cap)
        return min(timedelta(seconds=low + (high - low) * self.random()), self.cap)


@dataclass(frozen=True, slots=True)
class _Delays:
    values: tuple[timedelta, ...]

    def __call__(self, attempt: int, error: BaseException, /) -> timedelta:  # noqa: ARG002 - any error, same delay
        return self.values[min(max(attempt, 1), len(self.values)) - 1]


@dataclass(frozen=True, slots=True)
class _Never:
    def __call__(self, attempt: int, error: BaseException, /) -> None:  # noqa: ARG002 - whatever happened
        return None


def exponential(
    *,
    base: timedelta = timedelta(seconds=10),
    factor: float = 2.0,
    cap: timedelta = timedelta(days=1),
    jitter: float = 0.1,
    random: Callable[[], float] = _chance,
) -> RetryPolicy:
    """`base` after the first failure, then `factor` times the delay before, never more than `cap`.

    Each delay is spread by the share `jitter` (0 to 1) around its value; `random` gives numbers from 0 to 1. Any
    attempt number is safe. Raises ValueError for settings that can't work.
    """
    check_delay("exponential(base=...)", base)
    check_delay("exponential(cap=...)", cap)
    if not base or not cap:
        raise ValueError(
            "exponential(): base and cap must be longer than 0; for no delay at all use fixed(...)"
        )
    if not (math.isfinite(factor) and factor >= 1):
        raise ValueError(f"exponential(factor=...): expected a number from 1 up, got {factor!r}")
    if not 0 <= jitter <= 1:
        raise ValueError(f"exponential(jitter=...): expected a share from 0 to 1, got {jitter!r}")
    return _Exponential(base, factor, cap, jitter, random)


def fixed(delay: timedelta) -> RetryPolicy:
    """The same delay after every failure. Raises TypeError or ValueError for a delay that can't be."""
    return _Delays((check_delay("fixed(delay)", delay),))


def delays(values: Iterable[timedelta]) -> RetryPolicy:
    """One delay per failure in the order given; the last one repeats until the job's attempts are used up.

    Raises ValueError for an empty list.
    """
    checked = tuple(check_delay(f"delays()[{index}]", value) for index, value in enumerate(values))
    if not checked:
        raise ValueError("delays(): expected at least one delay; to try once only use never()")
    return _Delays(checked)


def never() -> RetryPolicy:
    """No second attempt: the first failure is final."""
    return _Never()


#: What a handler gets that names no policy, and what stands in for a policy that fails.
DEFAULT_RETRY = exponential()


def decide(policy: RetryPolicy, attempt: int, error: BaseException) -> Decision:
    """Ask the policy; whatever it does, the answer can be written down.

    A policy that raises, or answers with anything but None or a timedelta from 0 to `LONGEST_DELAY`, is replaced by
    the default policy for this once, and `Decision.fault` says why.
    """
    try:
        delay = policy(attempt, error)
        fault = _fault_in(delay)  # which runs code of theirs as well
    except BaseException as failure:  # also SystemExit: a policy must not end the thread that settles jobs
        delay, fault = None, storable(f"raised {headline(failure)}")
    return Decision(delay) if fault is None else Decision(DEFAULT_RETRY(attempt, error), fault)


def _fault_in(delay: object) -> str | None:
    """Why a policy's answer can't be used: the annotation is the user's promise, anything may come back."""
    if delay is None:
        return None
    if not isinstance(delay, timedelta):
        return f"returned {_short_repr(delay)}, expected a timedelta or None"
    if not timedelta(0) <= delay <= LONGEST_DELAY:
        return f"returned {delay}, expected 0 to {LONGEST_DELAY.days} days"
    return None


def _short_repr(value: object) -> str:
    try:
        return storable(repr(value), limit=100)
    except BaseException:
        return f"a {type(value).__qualname__}"
