"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.durations import LONGEST_DELAY, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("2m", 120),
        ("1h", 3600),
        ("1d", 86_400),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("0s", 0),
        (" 2M ", 120),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """Each unit, fractions and combinations."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "m", "10", "1.5", "-1s", "10x", "1m 30s extra", "inf", "nan", "1e3s", "٣s", "10s;"]
)
def test_everything_else_is_refused(text: str) -> None:
    """What was meant is never guessed."""
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


def test_a_plain_number_gets_a_hint() -> None:
    """The commonest slip is answered with what to write."""
    with pytest.raises(ValueError, match='\'30\' is no duration: say "30s" or "30m"'):
        parse_duration("30")


def test_a_duration_has_an_end() -> None:
    """A typo of a few zeros doesn't become a date that nobody can read."""
    with pytest.raises(ValueError, match="at most 36525 days"):
        parse_duration("999999999d")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=35), "35ms"),
        (timedelta(seconds=1.25), "1.25s"),
        (timedelta(seconds=10), "10s"),
        (timedelta(seconds=59.999), "1m"),
        (timedelta(minutes=2), "2m"),
        (timedelta(seconds=125), "2m 5s"),
        (timedelta(hours=25), "1d 1h"),
        (timedelta(days=3, seconds=5), "3d"),
        (timedelta(seconds=-10), "-10s"),
        (timedelta(microseconds=300), "0.3ms"),
    ],
)
def test_durations_are_written_short(duration: timedelta, text: str) -> None:
    """Two parts at most, no unit that says nothing."""
    assert format_duration(duration) == text


@given(st.timedeltas(timedelta(0), LONGEST_DELAY))
def test_what_is_written_can_be_read(duration: timedelta) -> None:
    """A duration from a message can be pasted into an option and means about the same."""
    read = parse_duration(format_duration(duration).replace(" ", ""))
    assert abs(read - duration) <= max(timedelta(microseconds=100), duration * 0.05)
