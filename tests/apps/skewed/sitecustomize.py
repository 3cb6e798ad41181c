"""A process whose clock is wrong by SA_JOBQUEUE_TEST_SKEW seconds: Python imports this before anything else.

Put this folder on PYTHONPATH. Monotonic clocks are left alone, as they are when a machine's time is set.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import Any

SKEW = float(os.environ["SA_JOBQUEUE_TEST_SKEW"])
_time, _time_ns, _real = time.time, time.time_ns, dt.datetime


class _Kind(type):
    """Values that C code makes are of the real class, and are as good."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real)


class _Skewed(_real, metaclass=_Kind):
    __slots__ = ()  # C code checks the size

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return _real.fromtimestamp(_time() + SKEW, tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _real.fromtimestamp(_time() + SKEW, dt.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


_Skewed.__module__, _Skewed.__qualname__, _Skewed.__name__ = "datetime", "datetime", "datetime"
time.time = lambda: _time() + SKEW
time.time_ns = lambda: _time_ns() + int(SKEW * 1e9)
dt.datetime = _Skewed  # type: ignore[misc]
