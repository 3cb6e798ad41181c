"""Two ways to write log records: lines for people and JSON objects for machines.

Setting up handlers is for the command line and for applications, never for the library itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from sa_jobqueue.database import hide_passwords
from sa_jobqueue.logs.lines import LOGGER_NAME
from sa_jobqueue.terminal import has_colours, safe

LogFormat = Literal["console", "json"]
_LINES = "\n\t"
_ENCODE = json.JSONEncoder(default=str).encode


def set_up_logging(log_format: LogFormat, level: str, stream: TextIO | None) -> None:
    """Send every record of this level or above to the stream: for a process that is a runner and nothing else.

    Does nothing when the process has set up logging before.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        JsonFormatter() if log_format == "json" else ConsoleFormatter(colours=has_colours(stream))
    )
    logging.basicConfig(level=level.upper(), handlers=[handler])


class ConsoleFormatter(logging.Formatter):
    """One short line, then what is left of an error, indented. Control characters are shown, not obeyed."""

    _COLOURS: Mapping[str, str] = {
        "DEBUG": "2",
        "INFO": "32",
        "WARNING": "33",
        "ERROR": "31",
        "CRITICAL": "31;1",
    }

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours
        self._second: tuple[int, str] = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        second, time = self._second
        if second != int(record.created):  # the same for thousands of lines
            time = self.formatTime(record, "%H:%M:%S")
            self._second = int(record.created), time
        level = f"{record.levelname:<7}"
        if self._colours:
            level = f"\x1b[{self._COLOURS.get(record.levelname, '0')}m{level}\x1b[0m"
        ours = record.name == LOGGER_NAME
        source = "" if ours else f"{record.name}: "
        # The message of an event holds the first line of its error.
        more = getattr(record, "error", "").split("\n")[1:] if ours else []
        if record.exc_info:
            more += self.formatException(record.exc_info).split("\n")
        text = "\n".join([f"{source}{record.getMessage()}", *more])
        return f"{time} {level} {safe(hide_passwords(text), keep=_LINES).replace(chr(10), chr(10) + '    ')}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, the record's extra fields, exception."""

    _OWN = frozenset((*logging.makeLogRecord({}).__dict__, "message", "asctime"))

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in self._OWN:
                values.setdefault(name, value)
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        shown = {
            name: hide_passwords(value) if isinstance(value, str) else value for name, value in values.items()
        }
        return _ENCODE(shown)
