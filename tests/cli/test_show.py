"""`sa-jobqueue jobs show`: everything about a job, and what to type next."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func, text

from tests.cli.conftest import Command, objects
from tests.support.jobs import add_job, add_running, change, keyed

HOUR = timedelta(hours=1)


def test_everything(command: Command, engine: Engine) -> None:
    """Fields, payload and the failures, the last one first."""
    errors = [
        {"attempt": 1, "at": "2026-01-01T00:00:00.000000Z", "verb": "retry", "error": "boom\n  at f"},
        {"attempt": 2, "at": "2026-01-02T00:00:00.000000Z", "verb": "rescue", "error": "the runner was lost"},
    ]
    job_id = add_job(
        engine,
        kind="document.embed",
        queue="ai",
        payload={"document": {"id": 7}, "model": "m1"},
        status="dead",
        reason="exhausted",
        attempts=3,
        returned=1,
        max_attempts=2,
        last_error="the runner was lost",
        errors=errors,
        finished_at=func.now() - HOUR,
        **keyed("embed:7", held=False),
    )
    result = command("jobs", "show", job_id)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"job {job_id}: dead"
    facts = {line[:17].strip(): line[17:].strip() for line in lines[1:] if line.startswith("  ")}
    assert facts["attempts"] == "2 of 2 (3 starts, 1 given back)"
    assert facts["reason"] == "exhausted"
    assert facts["idempotency key"] == "embed:7 (let go, scope unfinished)"
    assert facts["finished"].endswith("UTC (1h ago)")
    assert '    "model": "m1",' in lines
    start = lines.index("errors, the last first (2 kept):")
    assert lines[start + 1 : start + 6] == [
        "  attempt 2, rescue, 2026-01-02T00:00:00.000000Z",
        "    the runner was lost",
        "  attempt 1, retry, 2026-01-01T00:00:00.000000Z",
        "    boom",
        "      at f",
    ]
    assert lines[-2:] == ["now:", f"  try it again  sa-jobqueue jobs redrive {job_id}"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, ["jobs reschedule {} --priority 0", "jobs cancel {}"]),
        ({"run_at": func.now() + HOUR}, ["jobs reschedule {} --now", "jobs cancel {}"]),
        ({"status": "cancelled", "finished_at": func.now()}, ["jobs redrive {}"]),
        ({"status": "done", "finished_at": func.now()}, ["a job that is done stays done"]),
    ],
)
def test_what_can_be_done_now(
    command: Command, engine: Engine, columns: dict[str, Any], expected: list[str]
) -> None:
    """The exact commands, and only those that would land."""
    job_id = add_job(engine, **columns)
    *_, advice = command("jobs", "show", job_id).stdout.partition("now:\n")
    assert [line.split("  ")[-1].strip().removeprefix("sa-jobqueue ") for line in advice.splitlines()] == [
        line.format(job_id) for line in expected
    ]


def test_what_can_be_done_about_a_running_job(command: Command, engine: Engine) -> None:
    """A running job can be asked to stop once; a lost runner is named as such."""
    held, lost = add_running(engine, uuid4()), add_running(engine, uuid4(), lease=-HOUR)
    asked = add_running(engine, uuid4(), cancel_requested_at=func.now())
    assert f"sa-jobqueue jobs cancel {held}" in command("jobs", "show", held).stdout
    assert "its lease is past" in command("jobs", "show", lost).stdout
    shown = command("jobs", "show", asked).stdout
    assert "jobs cancel" not in shown
    assert "it ends when its handler does" in shown


def test_json(command: Command, engine: Engine) -> None:
    """One object per job and line, the payload as JSON inside."""
    first = add_job(engine, payload={"a": [1, "ü"]}, errors=[{"attempt": 1, "error": "x"}])
    second = add_job(engine, result=[1])
    result = command("jobs", "show", second, first, second, "--json")
    two, one = objects(result)
    assert (one["id"], one["payload"], two["id"], two["result"]) == (first, {"a": [1, "ü"]}, second, [1])
    assert one["errors"] == [{"attempt": 1, "at": None, "verb": None, "error": "x"}]
    assert one["now"].endswith("Z")


def test_an_unknown_id(command: Command, engine: Engine) -> None:
    """Code 1 and what may have become of it; the others are shown."""
    job_id = add_job(engine)
    result = command("jobs", "show", 99, job_id)
    assert result.exit_code == 1
    assert f"job {job_id}: ready" in result.stdout
    assert "Error: no such job: 99" in result.stderr
    assert "jobs list" in result.stderr


def test_a_terminal_is_not_steered(command: Command, engine: Engine) -> None:
    """Payloads and errors are the application's text, or a stranger's."""
    evil = "\x1b]0;pwned\x07\u202e"
    job_id = add_job(
        engine,
        kind=evil,
        payload={evil: evil},
        reason=evil,
        leased_by=evil,
        errors=[{"attempt": 1, "at": evil, "verb": evil, "error": f"{evil}\nnext"}],
        **keyed(evil),
    )
    shown = command("jobs", "show", job_id).stdout
    assert not {*"\x1b\x07\u202e"} & {*shown}
    assert shown.count("pwned") >= 8


def test_a_payload_that_python_cannot_read(command: Command, engine: Engine) -> None:
    """Somebody else's SQL may have stored a number of 5,000 digits: the rest of the job is shown all the same."""
    job_id = add_job(engine, payload=text(f"'[{'1' * 5000}]'::jsonb"))
    result = command("jobs", "show", job_id)
    assert result.exit_code == 0
    assert "the stored payload can't be read" in result.stdout
    assert (
        "the stored payload can't be read" in objects(command("jobs", "show", job_id, "--json"))[0]["payload"]
    )


def test_progress(command: Command, engine: Engine) -> None:
    """How far the handler was when it last said so, in words; the list shows it while this attempt runs."""
    said = {"fraction": 0.996, "text": "page 12\nof 12", "attempt": 1, "at": "2026-01-01T00:00:00.000000Z"}
    job_id = add_running(engine, uuid4(), progress=said)
    shown = command("jobs", "show", job_id).stdout
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("progress"))
    assert line.split(maxsplit=1)[1].startswith("99%, page 12")
    assert "(attempt 1, " in line
    assert line.endswith(" ago)")
    assert "99%, page 12" in command("jobs", "list").stdout
    assert "of 12" not in command("jobs", "list").stdout
    change(engine, job_id, attempts=2)
    assert "99%" not in command("jobs", "list").stdout
    assert objects(command("jobs", "show", job_id, "--json"))[0]["progress"] == said
