"""`sa-jobqueue prune`: old finished jobs go, nothing else, and nobody is surprised."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func, insert, text

from sa_jobqueue.models import jobs
from sa_jobqueue.store import pruning
from tests.cli.conftest import Command, objects, rows
from tests.support.jobs import add_job, add_running

DAY = timedelta(days=1)


def add_finished(engine: Engine, status: str, number: int = 1, *, age: timedelta = 4 * DAY) -> None:
    with engine.begin() as connection:
        values = {"status": status, "finished_at": func.now() - age}
        connection.execute(insert(jobs).values(**values), [{"kind": "test"}] * number)


def test_the_defaults(command: Command, engine: Engine) -> None:
    """Done and cancelled jobs older than three days; dead, younger, waiting and running ones stay."""
    add_finished(engine, "done", 2)
    add_finished(engine, "cancelled")
    add_finished(engine, "dead")
    add_finished(engine, "done", age=2 * DAY)
    add_job(engine, run_at=func.now() - 10 * DAY)
    add_running(engine, uuid4())
    result = command("prune", "--yes")
    assert (result.exit_code, result.output) == (0, "2 done pruned\n1 cancelled pruned\n")
    assert [row.status for row in rows(engine)] == ["dead", "done", "ready", "running"]


def test_dead_jobs_go_when_they_are_named(command: Command, engine: Engine) -> None:
    """What may still be redriven is deleted by those who say so."""
    add_finished(engine, "dead")
    add_finished(engine, "done")
    assert command("prune", "--status", "dead", "--older-than", "1d", "--yes").output == "1 dead pruned\n"
    assert [row.status for row in rows(engine)] == ["done"]


def test_more_than_a_batch(command: Command, engine: Engine) -> None:
    """Batch after batch, counted to the end."""
    add_finished(engine, "done", 1100)
    result = command("prune", "--yes", "--json")
    assert objects(result) == [
        {"status": "done", "deleted": 1100, "refused": 0, "fault": None},
        {"status": "cancelled", "deleted": 0, "refused": 0, "fault": None},
    ]
    assert rows(engine) == []


def test_a_dry_run_deletes_nothing(command: Command, engine: Engine) -> None:
    """The numbers, and every row is as it was."""
    add_finished(engine, "done", 3)
    before = rows(engine)
    result = command("prune", "--dry-run")
    assert result.stdout == "Would prune 3 jobs (3 done, 0 cancelled) older than 3d; nothing was deleted.\n"
    assert objects(command("prune", "--dry-run", "--json"))[0] == {
        "status": "done",
        "prunable": 3,
        "dry_run": True,
    }
    assert rows(engine) == before


def test_without_a_terminal_somebody_must_have_said_yes(command: Command, engine: Engine) -> None:
    """Nothing is deleted by a script that didn't mean it."""
    add_finished(engine, "done", 3)
    result = command("prune")
    assert result.exit_code == 2
    assert "Prune 3 jobs (3 done, 0 cancelled) older than 3d?" in result.stderr
    assert "add --yes" in result.stderr
    assert len(rows(engine)) == 3


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_somebody_is_asked(command: Command, engine: Engine) -> None:
    """No means no; nothing to prune needs no question."""
    add_finished(engine, "done")
    assert command("prune", answer="n\n").exit_code == 1
    assert len(rows(engine)) == 1
    assert command("prune", answer="y\n").exit_code == 0
    assert rows(engine) == []
    assert command("prune").exit_code == 0


@pytest.mark.parametrize("when", ["NOT DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_what_an_application_keeps_is_told(command: Command, engine: Engine, when: str) -> None:
    """A foreign key of the application's keeps its job; the others go, and the fault is named: code 1.

    One that is deferred would speak at the commit, and none of the batch would go.
    """
    add_finished(engine, "done", 3)
    with engine.begin() as connection:
        connection.execute(
            text(f"CREATE TABLE documents (job_id bigint CONSTRAINT kept REFERENCES jobqueue_jobs {when})")
        )
        connection.execute(text("INSERT INTO documents VALUES (2)"))
    result = command("prune", "--yes")
    assert result.exit_code == 1
    assert "2 done pruned" in result.stdout
    assert "done jobs that have to stay: 1," in result.stderr
    assert "constraint kept" in result.stderr
    assert [row.id for row in rows(engine)] == [2]


def test_an_interruption_keeps_what_is_done(
    command: Command, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is a transaction: the account tells what is gone, code 130."""
    add_finished(engine, "done", 3)
    monkeypatch.setattr("sa_jobqueue.cli.prune._BATCH", 2)
    calls = 0

    def interrupted(connection: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(connection, **given)

    real = pruning.prune
    monkeypatch.setattr(pruning, "prune", interrupted)
    result = command("prune", "--yes")
    assert result.exit_code == 130
    assert "2 done pruned" in result.stdout
    assert len(rows(engine)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--status", "ready"), "'ready' is not one of"),
        (("--older-than", "3"), 'say "3s" or "3m"'),
    ],
)
def test_usage(command: Command, arguments: tuple[str, ...], message: str) -> None:
    """What is not finished can't be pruned, and a number needs its unit."""
    result = command("prune", *arguments)
    assert result.exit_code == 2
    assert message in result.output
