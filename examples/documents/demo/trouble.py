"""How the demo fails: one error, whose message is all that is shown."""

from __future__ import annotations


class DemoError(Exception):
    """A step did not come out as it must, or could not be done; the message says which and why."""


def expect(truth: bool, otherwise: str) -> None:
    """Raise DemoError unless it is true."""
    if not truth:
        raise DemoError(f"this must not be: {otherwise}")
