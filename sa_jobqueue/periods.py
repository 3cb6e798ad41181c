"""Periods of time that a key is taken for, one after another: an hour, a day of UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sa_jobqueue.durations import check_setting

SHORTEST_PERIOD = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """For `enqueue(key_scope=...)`: the key is taken once in each period of this length.

    Periods count from 1970-01-01 in UTC, so that a day begins at midnight UTC and a week on a Thursday. `at` is the
    logical time that the job is about; without it the database's clock decides, at the start of the caller's transaction.

    Raises TypeError or ValueError for a length that is not whole seconds, from one second up to what settings may be,
    and for an `at` that is naive or whose period begins outside of the years 1 to 9999.
    """

    length: timedelta
    at: datetime | None = None

    def __post_init__(self) -> None:
        check_setting("Period(length)", self.length, SHORTEST_PERIOD)
        if self.length % SHORTEST_PERIOD:
            raise ValueError(f"Period({self.length!r}): expected whole seconds")
        if self.at is not None and not isinstance(self.at, datetime):
            raise TypeError(f"Period(at=...): expected an aware datetime, got {type(self.at).__qualname__}")
        if self.at is not None and self.at.utcoffset() is None:
            raise ValueError(
                f"Period(at={self.at}): naive: pass an aware datetime, datetime(..., tzinfo=UTC)"
            )
        if self.at is not None:
            try:
                bucket_of(self.at, self.length)
            except OverflowError:
                raise ValueError(
                    f"Period(at={self.at}): its period begins outside of the years 1 to 9999 in UTC"
                ) from None


def bucket_of(moment: datetime, length: timedelta) -> str:
    """The period that holds the moment, as text: its start in UTC and its length. Stored, so it never changes."""
    start = _EPOCH + (moment - _EPOCH) // length * length
    # Not by strftime(), which writes years before 1000 in another way on each platform.
    text = start.replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{text}Z/{length // SHORTEST_PERIOD}s"
