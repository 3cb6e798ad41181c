"""Before many jobs are touched: a question on a terminal, and `--yes` where nobody can be asked."""

from __future__ import annotations

import sys

import click

from sa_jobqueue.cli.exits import CommandError
from sa_jobqueue.cli.output import is_terminal


def confirm(question: str, *, yes: bool) -> None:
    """Return when it may go on; raises click.Abort when somebody says no, CommandError when nobody can be asked."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise CommandError(
            f"{question} There is no terminal to ask on: add --yes, or --dry-run to look first"
        )
    click.confirm(question, abort=True, err=True)


class Progress:
    """One line on a terminal's standard error that counts up; nothing anywhere else, and nothing for a single batch."""

    def __init__(self, total: int, *, least: int) -> None:
        self._total = total
        self._shown = False
        self._live = is_terminal(sys.stderr) and total > least

    def show(self, number: int) -> None:
        """So many are done."""
        if self._live:
            self._shown = True
            click.echo(f"\r{number:,} of {self._total:,}", nl=False, err=True)

    def close(self) -> None:
        """Take the line away, for what is said next."""
        if self._shown:
            self._shown = False
            click.echo("\r" + " " * (2 * len(f"{self._total:,}") + len(" of ")) + "\r", nl=False, err=True)
