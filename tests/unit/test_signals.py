"""One stop that arrives twice, and a second thought."""

from __future__ import annotations

import signal

import pytest

from sa_jobqueue.runner import signals
from sa_jobqueue.runner.signals import SAME_WITHIN, SecondSignal, stop_on_signals

NUMBERS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time, in a list of one."""
    now = [1000.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("again", NUMBERS)
def test_a_stop_that_is_delivered_twice_is_one_stop(clock: list[float], again: signal.Signals) -> None:
    """Sent to the group and handed on by a wrapper, it must not take the running jobs' grace period from them."""
    asked: list[str] = []
    with stop_on_signals(asked.append):
        signal.raise_signal(signal.SIGTERM)
        clock[0] += SAME_WITHIN / 2
        signal.raise_signal(again)
        signal.raise_signal(again)
    assert asked == ["SIGTERM"]


@pytest.mark.parametrize("again", NUMBERS)
def test_a_later_signal_ends_at_once(clock: list[float], again: signal.Signals) -> None:
    """The time counts from the first: repeating it does not put off the end."""
    asked: list[str] = []
    with stop_on_signals(asked.append):
        signal.raise_signal(signal.SIGINT)
        clock[0] += SAME_WITHIN / 2
        signal.raise_signal(signal.SIGINT)
        clock[0] += SAME_WITHIN / 2
        with pytest.raises(SecondSignal) as caught:
            signal.raise_signal(again)
    assert caught.value.number == again
    assert asked == ["SIGINT"]
