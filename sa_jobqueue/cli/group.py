"""The command `sa-jobqueue` itself: its version, its subcommands, and how it ends."""

from __future__ import annotations

import io
import platform
import sys
import traceback
from importlib import metadata
from typing import NoReturn

import click
import sqlalchemy

from sa_jobqueue.cli.groups import Group
from sa_jobqueue.cli.jobs import jobs
from sa_jobqueue.cli.prune import prune
from sa_jobqueue.cli.run import run
from sa_jobqueue.cli.stats import stats
from sa_jobqueue.database import hide_passwords


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value:
        return
    try:
        version = metadata.version("sa-jobqueue")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(
        f"sa-jobqueue {version}, SQLAlchemy {sqlalchemy.__version__}, Python {platform.python_version()}"
    )
    ctx.exit()


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Each command's --help has its exit codes.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """Jobs in PostgreSQL, as part of your SQLAlchemy application.

    \b
      sa-jobqueue run myapp.jobs:jobs
      sa-jobqueue stats
      sa-jobqueue jobs list --status dead
    """


for _command in (run, jobs, prune, stats):
    cli.add_command(_command)


def main() -> NoReturn:
    """The command `sa-jobqueue`. Always ends the process, with one of the documented exit codes."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal in Latin-1 gets the rest of the text all the same.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli()
    except Exception:  # shown as Python would, but for passwords
        click.echo(hide_passwords(traceback.format_exc()), err=True, nl=False)
    raise SystemExit(1)
