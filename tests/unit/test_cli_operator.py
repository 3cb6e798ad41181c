"""The operator's commands without a database: their help, their options, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sa_jobqueue.cli import cli
from sa_jobqueue.cli.exits import OPERATOR_EXIT_CODES
from sa_jobqueue.durations import format_duration
from sa_jobqueue.retention import Retention
from sa_jobqueue.states import JobStatus, Verb


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


OPERATOR = dict(one for one in commands(cli) if one[0] != ("run",))


def test_the_commands() -> None:
    """What an operator can type."""
    verbs = (Verb.CANCEL, Verb.REDRIVE, Verb.RESCHEDULE)
    expected = {("jobs", str(verb)) for verb in verbs}
    assert {*OPERATOR} == {*expected, ("jobs",), ("jobs", "list"), ("jobs", "show"), ("prune",), ("stats",)}


@pytest.mark.parametrize("path", OPERATOR)
def test_help_begins_with_examples(path: tuple[str, ...]) -> None:
    """An example of the command itself stands before its options, and the exit codes behind them."""
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    before, options = result.output.split("Options:", 1)
    assert f"    sa-jobqueue {' '.join(path)}" in before
    codes = [line.strip() for line in OPERATOR_EXIT_CODES.splitlines()[2:]]
    assert all(code in options for code in codes)


@pytest.mark.parametrize("path", OPERATOR)
def test_every_option_says_what_it_is_for(path: tuple[str, ...]) -> None:
    """And every command that reads the database takes the same two options for it."""
    options = {param.name: param for param in OPERATOR[path].params if isinstance(param, click.Option)}
    assert [name for name, option in options.items() if not option.help] == []
    if not isinstance(OPERATOR[path], click.Group):
        assert options["database_url"].envvar == ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")
        assert options["schema"].envvar == "SA_JOBQUEUE_SCHEMA"


def test_jobs_alone_shows_its_help() -> None:
    """Nobody has to know the commands by heart."""
    result = CliRunner().invoke(cli, ["jobs"])
    assert "redrive" in result.output
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list"], "No such command 'list'. Did you mean 'sa-jobqueue jobs list'?"),
        (["cancel", "7"], "Did you mean 'sa-jobqueue jobs cancel'?"),
        (["jobs", "prune"], "Did you mean 'sa-jobqueue prune'?"),
        (["jobs", "lsit"], "No such command 'lsit'. Did you mean 'list'?"),
        (["nothing"], "No such command 'nothing'.\n"),
    ],
)
def test_a_command_in_the_wrong_place_is_told_where_it_is(arguments: list[str], message: str) -> None:
    """Whether a command belongs to `jobs` is nothing to know by heart."""
    result = CliRunner().invoke(cli, arguments, prog_name="sa-jobqueue")
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("text", ["abc", "0", "7,8", "9223372036854775808"])
@pytest.mark.parametrize("path", [("show",), ("cancel",), ("list", "--before")])
def test_what_is_no_id_is_told_so(path: tuple[str, ...], text: str) -> None:
    """In the words of the queue, not of a type."""
    result = CliRunner().invoke(cli, ["jobs", *path, text])
    assert result.exit_code == 2
    assert f"'{text}' is no job id: ids are whole numbers from 1, see: sa-jobqueue jobs list" in result.output


def test_a_person_prunes_what_a_runner_would() -> None:
    """Without options the command goes by the retention that runners have by default."""
    options = {param.name: param for param in OPERATOR["prune",].params}
    kept = Retention()
    assert kept.done == kept.cancelled
    assert kept.done is not None
    assert options["older_than"].default == format_duration(kept.done)
    assert options["statuses"].default == (str(JobStatus.DONE), str(JobStatus.CANCELLED))
    assert kept.dead is None


@pytest.mark.parametrize("path", [path for path in OPERATOR if path != ("jobs",)])
def test_passwords_are_hidden(path: tuple[str, ...]) -> None:
    """A URL that can't be used is not repeated with its password."""
    arguments = {"show": ["7"], "cancel": ["7"], "redrive": ["7"], "reschedule": ["7", "--now"]}.get(
        path[-1], []
    )
    result = CliRunner().invoke(cli, [*path, *arguments, "--database-url", "mysql://u:hunter2@h/d"])
    assert result.exit_code == 2
    assert "needs PostgreSQL" in result.output
    assert "hunter2" not in result.output
