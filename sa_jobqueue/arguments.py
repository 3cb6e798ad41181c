"""What a person or a program asks for about a job, checked: each function returns a plain value or raises.

Errors name the argument. For `enqueue()` and the verbs of `admin`; nothing here sends SQL.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from sa_jobqueue.durations import check_delay
from sa_jobqueue.names import check_name
from sa_jobqueue.payloads import plain_text
from sa_jobqueue.records import HIGHEST_PRIORITY, LAST_PAYLOAD_VERSION, LOWEST_PRIORITY, MOST_ATTEMPTS

#: Drivers can't read a timestamp of another year back, in whatever time zone the session is.
FIRST_YEAR, LAST_YEAR = 2, 9998


def name(argument: str, value: Any) -> str:
    """A kind or queue as a plain str."""
    return _known_name(argument, value) if isinstance(value, str) else check_name(argument, value)


@lru_cache(maxsize=1024)
def _known_name(argument: str, value: str) -> str:
    """There are few names and many jobs: look at each name once."""
    return plain_text(check_name(argument, value))


def priority(value: Any) -> int:
    """0, the first, to 9."""
    return _whole("priority", value, HIGHEST_PRIORITY, LOWEST_PRIORITY)


def max_attempts(value: Any) -> int:
    """1 to 2,000,000,000."""
    return _whole("max_attempts", value, 1, MOST_ATTEMPTS)


def payload_version(value: Any) -> int:
    """1 to 2,000,000,000."""
    return _whole("payload_version", value, 1, LAST_PAYLOAD_VERSION)


def check_times(*, run_at: Any, delay: Any, expires_at: Any = None) -> None:
    """Due times that can be stored, read back, and make sense together."""
    if run_at is not None:
        _check_moment("run_at", run_at)
    if delay is not None:
        if run_at is not None:
            raise ValueError(
                "run_at and delay exclude each other: pass the one that decides when the job is due"
            )
        check_delay("delay", delay)
    if expires_at is not None:
        _check_moment("expires_at", expires_at)
        if run_at is not None and expires_at <= run_at:
            raise ValueError(
                f"expires_at {expires_at} is not after run_at {run_at}: the job could never start"
            )


def _check_moment(argument: str, value: Any) -> None:
    if not isinstance(value, datetime):
        raise TypeError(f"{argument}: expected an aware datetime, got {type(value).__qualname__}")
    if value.utcoffset() is None:
        raise ValueError(
            f"{argument}: {value} is naive: pass an aware datetime, datetime(..., tzinfo=timezone.utc)"
        )
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ValueError(f"{argument}: {value} is not between the years {FIRST_YEAR} and {LAST_YEAR}")


def _whole(argument: str, value: Any, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{argument}: expected an int, got {type(value).__qualname__}")
    if not lowest <= value <= highest:
        raise ValueError(f"{argument}: {value} is not between {lowest} and {highest:,}")
    return int(value)
