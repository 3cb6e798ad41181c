"""SIGTERM and SIGINT for a runner that owns its process: the first asks for a stop, the second ends the wait.

Who starts a runner through `timeout`, or another wrapper of which a whole group is signalled, often sends it one
stop twice: once by the group, once handed on by the wrapper. Those two are one.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds within which a repeated signal is the same one, and nobody's second thought.
SAME_WITHIN = 0.5
#: Whoever may be the main thread sleeps no longer than so many seconds at a stretch. The kernel gives a signal to any
#: thread of a process that was stopped and goes on; Python, whose handlers run in the main one alone, does not wake it then.
LONGEST_SLEEP = 1.0


class SecondSignal(BaseException):  # like KeyboardInterrupt, it must pass every `except Exception`
    """Raised in the main thread by a second signal: end at once."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stop_on_signals(request_stop: Callable[[str], None]) -> Iterator[None]:
    """Answer the first signal by `request_stop(name)`, the next by SecondSignal; the host's handlers come back after.

    What comes within `SAME_WITHIN` of the first says nothing new.
    Raises ValueError outside the main thread, where Python allows no signal handlers.
    """
    asked: float | None = None

    def answer(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        now = time.monotonic()
        if asked is None:
            asked = now
            request_stop(signal.Signals(number).name)
        elif now - asked >= SAME_WITHIN:
            raise SecondSignal(number)

    previous = {number: signal.signal(number, answer) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            if handler is not None:  # None: it was not installed from Python, and can't be
                signal.signal(number, handler)
