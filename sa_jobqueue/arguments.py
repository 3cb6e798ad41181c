"""What a person or a program asks for about a job, checked: each function returns a plain value or raises.

Errors name the argument, as the caller knows it. For handlers, `enqueue()` and `admin`; nothing here sends SQL.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from sa_jobqueue.durations import check_delay
from sa_jobqueue.names import check_name
from sa_jobqueue.payloads import LARGEST_PAYLOAD_BYTES, plain_text
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


def priority(value: Any, argument: str = "priority") -> int:
    """0, the first, to 9."""
    return _whole(argument, value, HIGHEST_PRIORITY, LOWEST_PRIORITY)


def max_attempts(value: Any, argument: str = "max_attempts") -> int:
    """1 to 2,000,000,000."""
    return _whole(argument, value, 1, MOST_ATTEMPTS)


def payload_version(value: Any, argument: str = "payload_version") -> int:
    """1 to 2,000,000,000."""
    return _whole(argument, value, 1, LAST_PAYLOAD_VERSION)


def max_payload_bytes(value: Any, argument: str = "max_payload_bytes") -> int:
    """1 to 64 MiB."""
    return _whole(argument, value, 1, LARGEST_PAYLOAD_BYTES)


def limit(value: Any, highest: int | None = None) -> int:
    """At most how many: 1 or more, as many as one likes unless there is a `highest`."""
    return _whole("limit", value, 1, highest)


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


def _whole(argument: str, value: Any, lowest: int, highest: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{argument}: expected an int, got {type(value).__qualname__}")
    if highest is None and value < lowest:
        raise ValueError(f"{argument}: {value} is below {lowest}")
    if highest is not None and not lowest <= value <= highest:
        raise ValueError(f"{argument}: {value} is not between {lowest} and {highest:,}")
    return int(value)
