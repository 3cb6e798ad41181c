"""How long things take: the longest delay a job can be given, and durations as text ("90s", "2m").

Pure functions over `timedelta`; nothing here reads a clock.
"""

from __future__ import annotations

import re
from datetime import timedelta

from sa_jobqueue.names import passed

#: Delays end here: later dates leave the range that Python and applications can read back.
LONGEST_DELAY = timedelta(days=36_525)
#: Beyond a year a setting is a slip, and beyond some centuries the arithmetic of leases ends.
LONGEST_SETTING = timedelta(days=366)
#: The shortest time that a handler can be given.
SHORTEST_TIMEOUT = timedelta(milliseconds=1)

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)


def check_delay(name: str, value: timedelta) -> timedelta:
    """The value itself, when a job can wait that long: from 0 to `LONGEST_DELAY`.

    Raises TypeError for anything but a timedelta and ValueError for a delay out of range, both naming the argument.
    """
    if not isinstance(value, timedelta):
        raise TypeError(
            f"{name}: expected a datetime.timedelta, got {passed(value)}: write timedelta(seconds=...)"
        )
    if value < timedelta(0):
        raise ValueError(f"{name}: a delay can't be negative, got {value}")
    if value > LONGEST_DELAY:
        raise ValueError(f"{name}: at most {LONGEST_DELAY.days} days, got {value}")
    return value


def check_setting(name: str, value: timedelta, shortest: timedelta) -> timedelta:
    """The value itself, when a setting can be that long: from `shortest` to `LONGEST_SETTING`.

    Raises TypeError for anything but a timedelta and ValueError for one out of range, both naming setting and value.
    """
    if not isinstance(value, timedelta):
        raise TypeError(f"{name}={value!r}: expected a datetime.timedelta: write timedelta(seconds=...)")
    if not shortest <= value <= LONGEST_SETTING:
        raise ValueError(
            f"{name}={format_duration(value)}: must be from {format_duration(shortest)} to "
            f"{format_duration(LONGEST_SETTING)}"
        )
    return value


def parse_duration(text: str) -> timedelta:
    """A duration written as number and unit, or several of them: "500ms", "10s", "2m", "1h30m", "1d".

    Raises ValueError for everything else; a number without a unit is refused, for nobody can tell which was meant.
    """
    compact = text.strip().lower()
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        hint = (
            f': say "{compact}s" or "{compact}m"' if re.fullmatch(r"\d+(\.\d+)?", compact, re.ASCII) else ""
        )
        raise ValueError(f"{text!r} is no duration{hint or ': write for example 500ms, 10s, 2m, 1h or 1d'}")
    return check_delay(text, sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0)))


def format_duration(duration: timedelta) -> str:
    """A duration for people: two significant parts at most, such as "35ms", "1.25s", "2m 5s", "3d 4h"."""
    seconds = duration.total_seconds()
    if seconds < 0:
        return f"-{format_duration(-duration)}"
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms" if seconds else "0s"
    if seconds < 59.995:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number}{unit}" for number, unit in parts[first : first + 2] if number)
