"""Waiting for what another thread, process or server brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

#: Seconds that whatever comes anyway may take: on a busy machine a process alone may need many to start. A test names
#: a shorter time only where that time is what it tests.
PATIENCE = 60.0


def wait_until(predicate: Callable[[], Answer], *, timeout: float = PATIENCE, what: str = "") -> Answer:
    """Ask until the answer is true and return it; AssertionError after `timeout` seconds.

    What comes late is asked for more seldom: questions cost the database and a machine of few processors more than waiting.
    """
    deadline = time.monotonic() + timeout
    pause = 0.005
    while True:
        if answer := predicate():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or predicate} (last answer: {answer!r})")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)
