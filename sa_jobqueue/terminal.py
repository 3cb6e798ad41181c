"""Text for a terminal: nothing in it can steer the terminal, and it has colours where somebody watches and wants them.

Names, payloads and errors of jobs, and what applications log, are other people's text.
"""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO

#: Controls, formats (of bidirectional text too), surrogates, private and unassigned ones, separators of lines.
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def safe(text: str, *, keep: str = "") -> str:
    """The text with every character escaped that could move the cursor, colour, or reorder what is shown, but these."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escaped(letter) if unicodedata.category(letter) in _UNSAFE and letter not in keep else letter
        for letter in text
    )


def safe_lines(text: str) -> list[str]:
    """The same for a text of several lines, which stay lines."""
    return [safe(line) for line in text.split("\n")]


def is_terminal(stream: TextIO | None) -> bool:
    """Somebody is on the other side. A process that was started without a stream has None there."""
    return stream is not None and stream.isatty()


def has_colours(stream: TextIO | None) -> bool:
    """Whether a person watches the stream on a terminal and didn't refuse colours (`NO_COLOR`)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
