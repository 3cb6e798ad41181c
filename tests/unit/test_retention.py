"""How long finished jobs are kept: what can be said, and how the command line says it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sa_jobqueue.cli import cli
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Retention, RunnerSettings
from sa_jobqueue.states import TERMINAL, JobStatus

DAY = timedelta(days=1)


def test_dead_jobs_alone_are_kept_for_ever() -> None:
    """Without a word done and cancelled jobs go after three days, and what a person may still redrive stays."""
    assert RunnerSettings().retention == Retention(done=3 * DAY, cancelled=3 * DAY, dead=None)
    assert Retention().pruned == {JobStatus.DONE: 3 * DAY, JobStatus.CANCELLED: 3 * DAY}


def test_every_terminal_status_has_a_retention() -> None:
    """No status can be forgotten, as cancelled ones so often are; nothing is legal and means at once."""
    all_at_once = Retention(done=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
    assert all_at_once.pruned == dict.fromkeys(TERMINAL, timedelta(0))
    assert Retention(done=None, cancelled=None).pruned == {}


@pytest.mark.parametrize(
    ("ages", "error", "words"),
    [
        ({"done": -DAY}, ValueError, "retention.done: a delay can't be negative"),
        ({"dead": 40_000 * DAY}, ValueError, "retention.dead: at most 36525 days"),
        ({"cancelled": 3}, TypeError, "retention.cancelled: expected a datetime.timedelta, got 3"),
    ],
)
def test_what_is_no_retention_is_refused(ages: dict[str, Any], error: type[Exception], words: str) -> None:
    """The message names the status."""
    with pytest.raises(error, match=words):
        Retention(**ages)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[RunnerSettings]:
    """The settings that reach the runner, which doesn't run."""
    settings: list[RunnerSettings] = []
    registry = Registry()
    registry.handler("test")(lambda: None)

    class FakeRunner:
        def __init__(self, *given: Any, **_: Any) -> None:
            settings.append(given[2])

        def run(self, *, handle_signals: bool) -> int:
            return 0

    monkeypatch.setattr("sa_jobqueue.cli.run.Runner", FakeRunner)
    monkeypatch.setattr("sa_jobqueue.cli.run._load", lambda _: registry)
    return settings


def _run(*options: str, **variables: str) -> Result:
    given = ["run", "app:jobs", "--database-url", "postgresql:///app", *options]
    return CliRunner().invoke(cli, given, env=variables)


def test_the_command_line_has_the_same_defaults(made: list[RunnerSettings]) -> None:
    """Who gives no option gets what `RunnerSettings()` means."""
    assert _run().exit_code == 0
    defaults = RunnerSettings()
    assert (made[0].retention, made[0].prune_interval) == (defaults.retention, defaults.prune_interval)


def test_options_and_variables(made: list[RunnerSettings]) -> None:
    """Each status has an option and a variable; `forever` is a value like others."""
    options = ("--keep-done", "12h", "--keep-cancelled", "Forever", "--prune-interval", "5m")
    result = _run(*options, SA_JOBQUEUE_KEEP_DEAD="90d", SA_JOBQUEUE_KEEP_DONE="1d")
    assert (result.exit_code, result.output) == (0, "")
    assert made[0].retention == Retention(done=DAY / 2, cancelled=None, dead=90 * DAY)
    assert made[0].prune_interval == timedelta(minutes=5)


@pytest.mark.parametrize("text", ["never", "3", "-1d", ""])
def test_what_is_no_duration_is_told(made: list[RunnerSettings], text: str) -> None:
    """The usage error shows what can be written, `forever` included."""
    result = _run("--keep-dead", text)
    assert (result.exit_code, made) == (2, [])
    assert "--keep-dead" in result.output
    assert "or forever" in " ".join(result.output.split())
