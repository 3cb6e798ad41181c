"""After every test: no thread left over. Connections are checked where a test's database is dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def no_thread_left_over() -> Iterator[None]:
    """A thread that outlives its test works on the next test's data."""
    before = set(threading.enumerate())
    yield
    try:
        wait_until(lambda: set(threading.enumerate()) <= before, timeout=2)
    except AssertionError:
        left = ", ".join(sorted(thread.name for thread in set(threading.enumerate()) - before))
        pytest.fail(f"threads left over: {left}")
