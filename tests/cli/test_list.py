"""`sa-jobqueue jobs list`: what is chosen, and how it is shown."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func

from tests.cli.conftest import Command, objects
from tests.support.jobs import add_job, add_running

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def test_no_jobs(command: Command) -> None:
    """An empty answer is an answer."""
    result = command("jobs", "list")
    assert (result.exit_code, result.output) == (0, "No jobs.\n")
    assert (command("jobs", "list", "--json").exit_code, command("jobs", "list", "--json").output) == (0, "")


def test_a_row_for_each_job(command: Command, engine: Engine) -> None:
    """Each status tells its own story: when it is due, who runs it, when and why it ended."""
    add_job(engine, kind="late", run_at=func.now() - 5 * MINUTE)
    add_job(engine, kind="soon", run_at=func.now() + 10 * MINUTE + timedelta(seconds=30), priority=0)
    add_running(
        engine, uuid4(), kind="held", leased_by="runner-7", attempts=2, cancel_requested_at=func.now()
    )
    add_running(engine, uuid4(), kind="left", lease=-HOUR)
    add_job(
        engine,
        kind="failed",
        queue="ai",
        status="dead",
        attempts=6,
        returned=1,
        reason="exhausted",
        last_error="ValueError: boom\n  at x",
        finished_at=func.now() - 3 * HOUR,
    )
    add_job(engine, kind="fine", status="done", last_error="the first time", finished_at=func.now())
    result = command("jobs", "list")
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["ID", "STATUS", "KIND", "QUEUE", "PRIORITY", "ATTEMPTS", "WHEN", "NOTE"]
    fine, failed, left, held, soon, late = (" ".join(line.split()) for line in lines)
    assert fine == "6 done fine default 5 0/5 now"
    assert failed == "5 dead failed ai 5 5/5 3h ago exhausted: ValueError: boom"
    assert left.startswith("4 running left default 5 1/5 holder, lease past 1h")
    assert held.startswith("3 running held default 5 2/5 runner-7, lease ")
    assert held.endswith(" cancel requested")
    assert soon.startswith("2 ready soon default 0 0/5 in 10m ")
    assert late.startswith("1 ready late default 5 0/5 due 5m")


def test_filters(command: Command, engine: Engine) -> None:
    """Options of one sort widen, of different sorts narrow; the key and being due are filters too."""
    first = add_job(engine, kind="a", queue="x", idempotency_key="k", key_scope="row", unique_key="k")
    second = add_job(engine, kind="b", queue="x", run_at=func.now() + HOUR)
    third = add_job(engine, kind="a", queue="y", status="dead", finished_at=func.now())
    cases: list[tuple[tuple[str, ...], list[int]]] = [
        (("--kind", "a"), [third, first]),
        (("--kind", "a", "--kind", "b", "--queue", "x"), [second, first]),
        (("--status", "dead", "--status", "ready"), [third, second, first]),
        (("--due",), [first]),
        (("--key", "k"), [first]),
        (("--before", str(third), "--limit", "1"), [second]),
    ]
    for arguments, expected in cases:
        result = command("jobs", "list", *arguments, "--json")
        assert [job["id"] for job in objects(result)] == expected, arguments


def test_json(command: Command, engine: Engine) -> None:
    """One object per line, by the names of the columns; times are ISO 8601 in UTC, numbers numbers."""
    add_job(engine, kind="käse", run_at="2026-01-31 09:00+01", last_error="boom\nwhere")
    result = command("jobs", "list", "--json")
    (job,) = objects(result)
    assert result.stdout.isascii()
    assert {*job} == {
        *("id", "kind", "queue", "status", "priority", "run_at", "attempts", "returned", "max_attempts"),
        *(
            "leased_by",
            "lease_until",
            "cancel_requested_at",
            "idempotency_key",
            "reason",
            "error",
            "progress",
        ),
        *("created_at", "updated_at", "finished_at"),
    }
    assert (job["kind"], job["status"], job["error"]) == ("käse", "ready", "boom")
    assert job["run_at"] == "2026-01-31T08:00:00.000000Z"
    assert (job["attempts"], job["finished_at"]) == (0, None)


def test_more_pages(command: Command, engine: Engine) -> None:
    """A full page says how to see the next one, beside the answer itself."""
    for _ in range(3):
        add_job(engine)
    result = command("jobs", "list", "--limit", 2)
    assert "--before 2" in result.stderr
    assert len(result.stdout.splitlines()) == 3
    assert command("jobs", "list", "--limit", 2, "--before", 2).stderr == ""


@pytest.mark.parametrize("columns", [200, 100, 80, 60, 40, 20])
def test_a_table_fits_its_terminal(command: Command, engine: Engine, columns: int) -> None:
    """No line is wrapped: cells are cut where the terminal ends, wide characters counted as they are shown."""
    add_job(engine, kind="k" * 100, queue="漢字" * 40, last_error="e" * 250)
    add_running(engine, uuid4(), leased_by="host-" * 20)
    lines = command("jobs", "list", COLUMNS=str(columns)).stdout.splitlines()
    assert len(lines) == 3
    # A wide character takes two columns.
    assert all(len(line) + sum(letter in "漢字" for letter in line) <= columns for line in lines)
    assert lines[1].split()[:2] == ["2", "running"] or columns == 20


def test_a_terminal_is_not_steered(command: Command, engine: Engine) -> None:
    """Whatever producers wrote, a cell stays text: no escape sequence, no new line, no reordering."""
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e\x9b31m\r\nnext"
    add_job(engine, kind=evil, queue=evil, reason=evil, leased_by=evil, last_error=evil)
    result = command("jobs", "list")
    assert len(result.stdout.splitlines()) == 2
    assert not {*"\x1b\x07\x9b\r\u202e"} & {*result.stdout}
    assert "\\x1b]0;pwned\\x07\\x1b[2J\\u202e\\x9b31m\\r\\nnext" in result.stdout
    assert not {*"\x1b\x07\x9b\r\u202e"} & {*command("jobs", "list", "--json").stdout}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--status", "finished"), "'finished' is not one of"),
        (("--limit", "0"), "0 is not in the range"),
        (("--due", "--status", "dead"), "due jobs are ready ones, not dead"),
        (("--kind", "a\udcff"), "can't be the kind, queue or key of a job"),
        (("--before", "x"), "'x' is no job id"),
    ],
)
def test_silly_filters_are_usage_errors(command: Command, arguments: tuple[str, ...], message: str) -> None:
    """Code 2, before anything is asked of the database."""
    result = command("jobs", "list", *arguments, DATABASE_URL="postgresql://127.0.0.1:1/none")
    assert result.exit_code == 2
    assert message in result.output
