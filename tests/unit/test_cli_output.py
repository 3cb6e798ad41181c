"""What the command prints: safe, in the terminal's width, in colour only where that helps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sa_jobqueue.cli import output
from sa_jobqueue.cli.asking import Progress
from sa_jobqueue.cli.output import coloured, cut, fit, json_line, width_of
from sa_jobqueue.cli.table import Column, lines
from sa_jobqueue.cli.when import relative, when
from sa_jobqueue.states import JobStatus
from sa_jobqueue.terminal import safe, safe_lines
from sa_jobqueue.views import JobSummary, QueueStats

NOW = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("document.embed", "document.embed"),
        ("käse 漢字 é", "käse 漢字 é"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("a\u202eb\u2028c\u200f", "a\\u202eb\\u2028c\\u200f"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_steers_the_terminal(text: str, expected: str) -> None:
    """Controls, reordering and line separators are escaped; letters of all languages are not."""
    assert safe(text) == expected


def test_lines_stay_lines() -> None:
    """A stored error of several lines is shown as several lines, each of them safe."""
    assert safe_lines("a\nb\x1b\r") == ["a", "b\\x1b\\r"]


def test_cells_have_the_width_they_are_given() -> None:
    """Cut between characters, wide ones counted as two columns."""
    assert [cut("abcdef", width) for width in (6, 5, 1, 0)] == ["abcdef", "abcd…", "…", ""]
    assert [cut("漢字漢字", width) for width in (8, 7, 6, 2)] == ["漢字漢字", "漢字漢…", "漢字…", "…"]
    assert width_of("e\u0301a") == 2
    assert all(width_of(fit(text, 5)) == 5 for text in ("ab", "abcdefg", "漢字漢字"))


def test_a_narrow_table_drops_its_last_columns_before_it_wraps() -> None:
    """The first column, by which a job is named, is there to the last."""
    columns = (Column("ID", right=True), Column("NAME", least=4), Column("NOTE", least=4))
    rows = [("1", "n" * 10, "x" * 10)]
    shown = {width: list(lines(columns, rows, width=width))[1] for width in (None, 20, 14, 9, 4)}
    assert shown == {
        None: " 1  nnnnnnnnnn  xxxxxxxxxx",
        20: " 1  nnnnnn…  xxxxxx…",
        14: " 1  nnn…  xxx…",
        9: " 1  nnn…",
        4: " 1",
    }


@pytest.mark.parametrize(
    ("environment", "terminal", "expected"),
    [
        ({}, True, "\x1b[31mdead\x1b[0m"),
        ({}, False, "dead"),
        ({"NO_COLOR": "1"}, True, "dead"),
        ({"NO_COLOR": ""}, True, "\x1b[31mdead\x1b[0m"),
        ({"TERM": "dumb"}, True, "dead"),
    ],
)
def test_colour_is_for_terminals(
    environment: dict[str, str], terminal: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status has its colour on a terminal, unless NO_COLOR or a dumb terminal says otherwise."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(output, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: terminal)))
    assert coloured("dead", JobStatus.DEAD) == expected


def test_records_as_json() -> None:
    """Records are objects, times ISO 8601 in UTC whatever their zone, durations seconds, all of it ASCII."""
    queue = QueueStats(queue="ü", oldest_due=90 * SECOND)
    line = json_line({"queue": queue, "at": NOW, "of": frozenset({"b", "a"}), "ids": (1, 2)})
    assert line.isascii()
    assert '"queue": {"queue": "\\u00fc", "due": 0' in line
    assert '"oldest_due": 90.0' in line
    assert line.endswith('"at": "2026-01-31T08:00:00.000000Z", "of": ["a", "b"], "ids": [1, 2]}')


def test_times_are_relative_to_the_database() -> None:
    """The sign becomes a word, and less than a second is now."""
    expected = {0.4: "now", -0.4: "now", 300: "in 5m", -100: "1m 40s ago", 86400 * 3: "in 3d"}
    assert {n: relative(NOW + n * SECOND, NOW) for n in expected} == expected


def test_when_of_each_status() -> None:
    """Waiting jobs tell when they are due, running ones whose they are, finished ones when they ended."""

    def told(status: str, **columns: Any) -> str:
        usual: dict[str, Any] = {
            "id": 1,
            "kind": "k",
            "queue": "q",
            "priority": 5,
            "run_at": NOW,
            "attempts": 1,
            "returned": 0,
            "max_attempts": 5,
            "leased_by": None,
            "lease_until": None,
            "cancel_requested_at": None,
            "idempotency_key": None,
            "reason": None,
            "error": None,
            "progress": None,
            "created_at": NOW,
            "updated_at": NOW,
            "finished_at": None,
        }
        return when(JobSummary(status=JobStatus(status), **{**usual, **columns}), NOW)

    assert told("ready") == "due 0s"
    assert told("ready", run_at=NOW + 61 * SECOND) == "in 1m 1s"
    assert told("running", leased_by="r", lease_until=NOW + 100 * SECOND) == "r, lease 1m 40s"
    assert told("running", leased_by=None, lease_until=NOW - SECOND) == "nobody, lease past 1s"
    assert told("done", finished_at=NOW - 3600 * SECOND) == "1h ago"


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    """A log file gets no line that is written over and over."""
    progress = Progress(1000, least=10)
    progress.show(500)
    progress.close()
    assert capsys.readouterr().err == ""
