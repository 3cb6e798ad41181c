"""Names that people choose (kinds, queues, runners): what makes one acceptable, and the nearest one to a misspelling."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_NAME = 200


def check_name(what: str, value: str) -> str:
    """The name itself when a column, a log line and a command line can carry it.

    Raises TypeError when it is no text and ValueError when it is blank, longer than 200 characters, or holds a control
    character or a lone surrogate; the message begins with `what`.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a text, got {passed(value)}")
    if not value.strip():
        raise ValueError(f"{what}: a name can't be blank, got {value!r}")
    if len(value) > LONGEST_NAME:
        raise ValueError(f"{what}: at most {LONGEST_NAME} characters, got {len(value)}")
    if bad := next((letter for letter in value if _unfit(letter)), None):
        raise ValueError(f"{what}: the character {bad!r} can't be part of a name, got {value!r}")
    return value


def _unfit(letter: str) -> bool:
    return letter < " " or letter == "\x7f" or "\ud800" <= letter <= "\udfff"


def passed(value: object) -> str:
    """What was passed in the place of something else, for an error message: a number as it is, of all else the type.

    Arguments get mixed up, and any of them may be a payload.
    """
    return repr(value) if value is None or isinstance(value, int | float) else type(value).__qualname__


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three known names that somebody who wrote `name` may have meant, the best one first."""
    return tuple(difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.5))


def hint(name: str, known: Iterable[str]) -> str:
    """The end of an error message: ", did you mean 'a' or 'b'?", or nothing when no known name is near."""
    close = nearest(name, known)
    return f", did you mean {' or '.join(map(repr, close))}?" if close else ""
