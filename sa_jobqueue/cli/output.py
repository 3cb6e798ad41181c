"""What commands print: text cut to the width of the terminal, in colour where that helps; and JSON lines.

What comes in is safe already: see `terminal`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from sa_jobqueue.states import JobStatus
from sa_jobqueue.terminal import has_colours, is_terminal

_ELLIPSIS = "…"
_COLOURS = {
    JobStatus.RUNNING: "cyan",
    JobStatus.DONE: "green",
    JobStatus.DEAD: "red",
    JobStatus.CANCELLED: "yellow",
}
_WIDE = {"W", "F"}


def width_of(text: str) -> int:
    """The columns of a terminal that a safe text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def fit(text: str, width: int) -> str:
    """The text in exactly `width` columns: filled up, or cut with an ellipsis, never inside a wide character."""
    return cut(text, width) + " " * max(0, width - width_of(cut(text, width)))


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns."""
    if width_of(text) <= width:
        return text
    taken, room = [], width - 1
    for letter in text:
        room -= _columns(letter)
        if room < 0:
            break
        taken.append(letter)
    return ("".join(taken) + _ELLIPSIS)[: max(0, width)]


def jobs_counted(count: int) -> str:
    """So many jobs, for people: "1 job", "1,204 jobs"."""
    return f"{count:,} job{'' if count == 1 else 's'}"


def terminal_width() -> int | None:
    """The width to fit into; None, for as wide as need be, when nobody looks: output to a pipe or file."""
    if is_terminal(sys.stdout) or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def coloured(text: str, status: JobStatus) -> str:
    """The text in its status's colour; plain without a terminal, and when NO_COLOR asks for it."""
    return click.style(text, fg=_COLOURS.get(status)) if has_colours(sys.stdout) else text


def json_line(value: Any) -> str:
    """One JSON object on one line, in ASCII. Records become objects, times ISO 8601 in UTC, durations seconds."""
    return json.dumps(as_json(value), default=str)


def as_json(value: Any) -> Any:
    """The value in JSON's own types."""
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value


def note(text: str) -> None:
    """Something beside the answer itself, on standard error."""
    click.echo(text, err=True)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in _WIDE else 1
