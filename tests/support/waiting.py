"""Waiting for what another thread, process or server brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(predicate: Callable[[], Answer], *, timeout: float = 10.0, what: str = "") -> Answer:
    """Ask until the answer is true and return it; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if answer := predicate():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or predicate} (last answer: {answer!r})")
        time.sleep(0.01)
