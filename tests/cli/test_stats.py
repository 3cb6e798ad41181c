"""`sa-jobqueue stats`: the numbers, for people and for machines."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func

from tests.cli.conftest import Command
from tests.support.jobs import add_job, add_running

HOUR = timedelta(hours=1)


@pytest.fixture
def filled(engine: Engine) -> None:
    """Two queues with something of everything."""
    add_job(engine, queue="ai", run_at=func.now() - 2 * HOUR)
    add_job(engine, queue="ai", run_at=func.now() + HOUR)
    add_running(engine, uuid4(), queue="ai", lease=-HOUR)
    for status in ("done", "done", "dead", "cancelled"):
        add_job(engine, queue="mail", status=status, finished_at=func.now())


@pytest.mark.usefixtures("filled")
def test_the_table(command: Command) -> None:
    """A row for each queue and one for all of them; expired leases are pointed at."""
    result = command("stats")
    assert result.exit_code == 0
    head, ai, mail, total = result.stdout.splitlines()
    assert head.split() == [
        *("QUEUE", "DUE", "OLDEST", "DUE", "SCHEDULED", "RUNNING", "LONGEST", "DEAD", "DONE"),
        *("CANCELLED", "EXPIRED"),
    ]
    assert ai.split()[:5] == ["ai", "1", "2h", "1", "1"]
    assert ai.split()[-4:] == ["0", "0", "0", "1"]
    assert mail.split() == ["mail", "0", "-", "0", "0", "-", "1", "2", "1", "0"]
    assert total.split()[-4:] == ["1", "2", "1", "1"]
    assert "expired leases: 1;" in result.stderr


@pytest.mark.usefixtures("filled")
def test_the_table_fits_a_usual_terminal(command: Command) -> None:
    """In 80 columns every status is there; what is left out is told below."""
    result = command("stats", COLUMNS="80")
    head, *lines = result.stdout.splitlines()
    assert head.split()[-1] == "CANCELLED"
    assert max(map(len, [head, *lines])) <= 80


@pytest.mark.usefixtures("filled")
def test_json(command: Command) -> None:
    """One object; ages are seconds."""
    numbers = json.loads(command("stats", "--json").stdout)
    assert {*numbers} == {"now", "queues", "total", "at_least"}
    ai, mail = numbers["queues"]
    assert (ai["queue"], ai["due"], ai["scheduled"], ai["expired"]) == ("ai", 1, 1, 1)
    assert 7200 <= ai["oldest_due"] < 7300
    assert (mail["oldest_due"], mail["done"], numbers["total"]["done"]) == (None, 2, 2)
    assert numbers["at_least"] == []


@pytest.mark.usefixtures("filled")
def test_a_long_history_is_not_counted_to_its_end(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is a lower bound says so, and --exact counts on."""
    monkeypatch.setattr("sa_jobqueue.cli.stats.COUNTED", 2)
    assert command("stats").stdout.splitlines()[2].split()[-3] == "2+"
    assert command("stats", "--exact").stdout.splitlines()[2].split()[-3] == "2"
    assert json.loads(command("stats", "--json").stdout)["at_least"] == ["done"]


def test_no_jobs(command: Command) -> None:
    """An empty table is no error."""
    assert (command("stats").exit_code, command("stats").output) == (0, "No jobs.\n")
