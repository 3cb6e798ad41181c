"""What a handler may return or raise."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from sa_jobqueue.durations import LONGEST_DELAY
from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze

MINUTE = timedelta(minutes=1)


def test_outcomes_are_values() -> None:
    """Equal outcomes compare equal and can't be changed after a handler returned them."""
    assert Retry(MINUTE, "busy") == Retry(after=MINUTE, reason="busy")
    assert Retry() == Retry(after=None, reason=None)
    assert Snooze(MINUTE) == Snooze(after=MINUTE)
    with pytest.raises(AttributeError):
        Discard("why").reason = "other"  # type: ignore[misc]


@pytest.mark.parametrize("delay", [timedelta(0), MINUTE, LONGEST_DELAY])
def test_every_delay_in_range_is_taken(delay: timedelta) -> None:
    """The ends of the range are part of it."""
    assert Retry(after=delay).after == Snooze(delay).after == delay


@pytest.mark.parametrize("outcome", [Retry, Snooze])
@pytest.mark.parametrize(
    ("delay", "error", "text"),
    [
        (-MINUTE, ValueError, "negative"),
        (LONGEST_DELAY + MINUTE, ValueError, "at most 36525 days"),
        (timedelta.max, ValueError, "at most 36525 days"),
        (60, TypeError, "timedelta"),
        ("60", TypeError, "timedelta"),
        (float("nan"), TypeError, "timedelta"),
    ],
)
def test_impossible_delays_are_refused_at_once(
    outcome: type[Retry | Snooze], delay: object, error: type[Exception], text: str
) -> None:
    """A bad delay fails in the handler that wrote it, naming the argument, not later in the runner."""
    with pytest.raises(error, match=rf"{outcome.__name__}\(after=\.\.\.\): .*{text}"):
        outcome(after=delay)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["", " \n", None, 3])
def test_a_discard_says_why(reason: object) -> None:
    """A dead job without a reason can't happen by accident."""
    with pytest.raises((ValueError, TypeError), match=r"Discard\(reason=\.\.\.\)"):
        Discard(reason)  # type: ignore[arg-type]


def test_a_retry_reason_is_optional_but_never_blank() -> None:
    """None and a text are both fine, an empty text is a mistake."""
    with pytest.raises(ValueError, match="blank"):
        Retry(reason="")


def test_settle_carries_an_outcome_out_of_a_call() -> None:
    """The raising form holds the outcome, passes code that catches the library's errors, and can be pickled."""
    raised = Settle(Discard("gone"))
    assert raised.outcome == Discard("gone")
    assert not isinstance(raised, JobQueueError)
    assert pickle.loads(pickle.dumps(raised)).outcome == Discard("gone")


@pytest.mark.parametrize("wrong", ["later", None, Retry, ValueError("x")])
def test_settle_takes_outcomes_only(wrong: object) -> None:
    """Anything else is refused where it is raised."""
    with pytest.raises(TypeError, match="expected a Retry, Snooze or Discard"):
        Settle(wrong)  # type: ignore[arg-type]
