"""Log records as text: one line for people, one object for machines, and nothing that must not be there."""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import timedelta
from typing import Any

import pytest

from sa_jobqueue import events as ev
from sa_jobqueue.logs import ConsoleFormatter, JsonFormatter, log_event, logger, set_up_logging
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.terminal import has_colours

SECOND = timedelta(seconds=1)
ERROR = "ValueError: boom\n  at app/jobs.py:3 in app.embed"
FAILED = ev.JobSettled(
    job_id=17,
    kind="document.embed",
    queue="ai",
    attempt=2,
    max_attempts=5,
    verb=Verb.RETRY,
    status=JobStatus.READY,
    duration=SECOND,
    delay=20 * SECOND,
    error=ERROR,
)


def record_of(event: ev.Event, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """Its record, at a fixed time."""
    with caplog.at_level(logging.DEBUG, logger.name):
        log_event(event)
    (record,) = caplog.records
    record.created, record.msecs = 1_900_000_000.25, 250
    return record


def test_json_is_one_object_per_line(caplog: pytest.LogCaptureFixture) -> None:
    """A machine finds every field; line breaks of an error stay inside the object."""
    line = JsonFormatter().format(record_of(FAILED, caplog))
    assert "\n" not in line
    assert list(json.loads(line).items()) == [
        ("time", "2030-03-17T17:46:40.250+00:00"),
        ("level", "warning"),
        ("logger", "sa_jobqueue.runner"),
        ("message", "job 17 document.embed failed in 1s, attempt 2 of 5, again in 20s: ValueError: boom"),
        ("event", "JobSettled"),
        ("job_id", 17),
        ("kind", "document.embed"),
        ("queue", "ai"),
        ("attempt", 2),
        ("max_attempts", 5),
        ("verb", "retry"),
        ("status", "ready"),
        ("duration_seconds", 1.0),
        ("delay_seconds", 20.0),
        ("error", ERROR),
    ]


def make_record(message: str, **more: Any) -> logging.LogRecord:
    """A record of an application's own logger."""
    record = logging.makeLogRecord({"name": "app", "msg": message, "levelname": "ERROR", "levelno": 40})
    record.__dict__.update(more)
    return record


def test_json_takes_any_record() -> None:
    """An application's extra fields, also those that JSON doesn't know, and its tracebacks are kept."""
    try:
        raise KeyError("x")
    except KeyError:
        record = make_record("no", when=SECOND, level="mine", exc_info=sys.exc_info())
    values = json.loads(JsonFormatter().format(record))
    assert (values["level"], values["when"]) == ("error", "0:00:01")
    assert values["exception"].endswith("KeyError: 'x'")


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter(colours=False)])
def test_passwords_of_urls_are_never_shown(formatter: logging.Formatter) -> None:
    """Neither in the message nor in a field nor in a traceback."""
    url = "postgresql://u:hunter2@h/d"
    try:
        raise ValueError(url)
    except ValueError:
        record = make_record(f"can't reach {url}", url=url, exc_info=sys.exc_info())
    line = formatter.format(record)
    assert "hunter2" not in line
    assert "postgresql://u:***@h/d" in line


def test_console_is_one_line_and_the_rest_of_the_error(caplog: pytest.LogCaptureFixture) -> None:
    """Where it happened stands below, indented."""
    text = ConsoleFormatter(colours=False).format(record_of(FAILED, caplog))
    first, second = text.split("\n")
    assert first[2:3] == first[5:6] == ":"
    message = "job 17 document.embed failed in 1s, attempt 2 of 5, again in 20s: ValueError: boom"
    assert first[8:] == f" WARNING {message}"
    assert second == "      at app/jobs.py:3 in app.embed"


def test_console_names_other_loggers_and_shows_tracebacks() -> None:
    """An application's own lines can be told from the runner's."""
    try:
        raise KeyError("x")
    except KeyError:
        record = make_record("no", exc_info=sys.exc_info())
    first, *_, last = ConsoleFormatter(colours=False).format(record).split("\n")
    assert first.endswith("ERROR   app: no")
    assert last == "    KeyError: 'x'"


def test_console_shows_control_characters_instead_of_obeying_them() -> None:
    """An error message can neither colour the terminal nor forge a line of the log."""
    text = ConsoleFormatter(colours=False).format(make_record("a\x1b[2Jb\rc\x00\udcff\nforged"))
    assert text.endswith("app: a\\x1b[2Jb\\rc\\x00\\udcff\n    forged")


def test_colours_are_for_terminals_of_people_who_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and NO_COLOR get plain text."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert has_colours(Terminal())
    assert not has_colours(io.StringIO())
    assert not has_colours(None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Terminal())
    assert "\x1b[31mERROR  \x1b[0m" in ConsoleFormatter(colours=True).format(make_record("x"))


@pytest.mark.parametrize(("log_format", "start"), [("json", '{"time": "'), ("console", "")])
def test_set_up_logging(log_format: Any, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen format and level hold for every logger of the process."""
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    stream = io.StringIO()
    set_up_logging(log_format, "warning", stream)
    logging.getLogger("app").info("unheard")
    logging.getLogger("app").warning("heard")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith(start)
    assert "heard" in line
