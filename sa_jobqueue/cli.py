"""The command line: `sa-jobqueue run module:registry` starts a runner.

Options become values here and trouble becomes one message and an exit code; what a runner does is `runner`'s business.
The only module that knows click.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import traceback
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import sqlalchemy
from sqlalchemy.exc import OperationalError

from sa_jobqueue import logs
from sa_jobqueue.database import hide_passwords, normalise_url, shown_url
from sa_jobqueue.durations import format_duration, parse_duration
from sa_jobqueue.errors import ConfigurationError, SchemaVersionError
from sa_jobqueue.failures import headline
from sa_jobqueue.loading import RegistryNotFoundError, load_registry
from sa_jobqueue.models import configure
from sa_jobqueue.models import metadata as tables
from sa_jobqueue.names import check_name, hint
from sa_jobqueue.runner import Runner, RunnerSettings
from sa_jobqueue.runner.settings import DEFAULT_CONCURRENCY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import URL

    from sa_jobqueue.logs.formats import LogFormat
    from sa_jobqueue.registry import Registry

EXIT_CODES = """\b
Exit codes:
  0      stopped cleanly, or --burst found no more due jobs
  1      unexpected error
  2      usage: an option, the database URL, the module or the queues can't be used
  3      the database server can't be reached at the start
  4      the queue's tables are missing or older than this release needs
  7      the grace period passed and running jobs were handed back
  128+n  forced by a second signal n
"""
_HANDED_BACK, _FORCED = 7, 128
_URL_VARIABLES = ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")
_DEFAULTS = RunnerSettings()


class CommandError(click.ClickException):
    """Trouble with what was asked for; the message is all that is shown."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(hide_passwords(message))


class UnreachableError(CommandError):
    """The database server doesn't answer."""

    exit_code = 3


class SchemaError(CommandError):
    """The queue's tables aren't there, or not those of this release."""

    exit_code = 4


def _duration(ctx: click.Context, param: click.Parameter, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _queues(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, int] | None:
    """`ai:4,default` as {"ai": 4, "default": 10}; None, for all queues, when nothing was given."""
    if not text:
        return None
    queues: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition(":")
        try:
            check_name("queue", name)
            if name in queues:
                raise ValueError(f"queue {name!r} is named twice")
            if number and not (number.isascii() and number.isdigit()):
                raise ValueError(f"queue {name!r}: {number!r} is no number")
        except ValueError as error:
            raise click.BadParameter(f"{error}; write it as ai:4,default:10", ctx, param) from None
        queues[name] = int(number) if number else DEFAULT_CONCURRENCY
    return queues


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


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """Jobs in PostgreSQL, as part of your SQLAlchemy application."""


@cli.command(epilog=EXIT_CODES)
@click.argument("target", metavar="MODULE:REGISTRY")
@click.option(
    "--queues",
    callback=_queues,
    envvar="SA_JOBQUEUE_QUEUES",
    show_envvar=True,
    metavar="NAME:NUMBER,...",
    help=f"Queues to serve and how many of their jobs may run at once. Default: every queue that a handler names, "
    f"{DEFAULT_CONCURRENCY} each.",
)
@click.option(
    "--lease",
    callback=_duration,
    metavar="DURATION",
    default=format_duration(_DEFAULTS.lease),
    show_default=True,
    envvar="SA_JOBQUEUE_LEASE",
    show_envvar=True,
    help="How long a claimed job stays this runner's without a renewal: what a crash costs.",
)
@click.option(
    "--poll-interval",
    callback=_duration,
    metavar="DURATION",
    default=format_duration(_DEFAULTS.poll_interval),
    show_default=True,
    envvar="SA_JOBQUEUE_POLL_INTERVAL",
    show_envvar=True,
    help="How long an idle runner waits before it looks again.",
)
@click.option(
    "--grace",
    callback=_duration,
    metavar="DURATION",
    default=format_duration(_DEFAULTS.grace),
    show_default=True,
    envvar="SA_JOBQUEUE_GRACE",
    show_envvar=True,
    help="How long running jobs may take after the first signal.",
)
@click.option("--burst", is_flag=True, help="Stop when no job is due.")
@click.option(
    "--database-url",
    envvar=_URL_VARIABLES,
    show_envvar=True,
    metavar="URL",
    help="The database, as postgresql://user:password@host/name.",
)
@click.option(
    "--schema",
    envvar="SA_JOBQUEUE_SCHEMA",
    show_envvar=True,
    help="The schema of the queue's tables. Default: found through search_path.",
)
@click.option(
    "--name",
    envvar="SA_JOBQUEUE_NAME",
    show_envvar=True,
    help="This runner's name. Default: host and process.",
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    envvar="SA_JOBQUEUE_LOG_FORMAT",
    show_envvar=True,
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
    envvar="SA_JOBQUEUE_LOG_LEVEL",
    show_envvar=True,
)
@click.pass_context
def run(
    ctx: click.Context,
    *,
    target: str,
    queues: dict[str, int] | None,
    lease: timedelta,
    poll_interval: timedelta,
    grace: timedelta,
    burst: bool,
    database_url: str | None,
    schema: str | None,
    name: str | None,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Run the jobs of a registry: `sa-jobqueue run myapp.jobs:jobs`.

    The current folder is importable. A first signal (INT, TERM) stops the runner gracefully, a second one at once.
    """
    # Before the application is imported, so that what it logs then is seen.
    logs.set_up_logging(log_format, log_level, sys.stderr)
    try:
        url = normalise_url(_database_url(database_url))
        if schema:
            configure(schema=schema)
        registry = _load(target)
        if schema and tables.schema != schema:
            raise ConfigurationError(
                f"--schema {schema}, but {target} configures {tables.schema!r}: leave out one of the two"
            )
        settings = RunnerSettings(
            queues=_served(registry, queues),
            lease=lease,
            poll_interval=poll_interval,
            grace=grace,
            burst=burst,
            name=name and check_name("--name", name),
        )
    except (ConfigurationError, RegistryNotFoundError, ValueError) as error:
        raise CommandError(str(error)) from error
    code = _run(registry, url, settings)
    if code == _HANDED_BACK or code > _FORCED:
        _exit_hard(code)
    ctx.exit(code)


def _run(registry: Registry, url: URL, settings: RunnerSettings) -> int:
    try:
        return Runner(registry, url, settings, subscribers=[logs.log_event]).run(handle_signals=True)
    except SchemaVersionError as error:
        raise SchemaError(str(error)) from error
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except OperationalError as error:
        cause = headline(error.orig or error)
        raise UnreachableError(f"can't reach the database at {shown_url(url)}: {cause}") from error


def _exit_hard(code: int) -> NoReturn:
    """Handlers still run and their jobs belong to somebody else by now: nothing may wait for their threads."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _database_url(given: str | None) -> str:
    """The first that isn't empty: the option, then the variables."""
    for text in (given, *map(os.environ.get, _URL_VARIABLES)):
        if text and text.strip():
            return text
    raise ConfigurationError(
        f"no database URL: set {' or '.join(_URL_VARIABLES)}, or give --database-url "
        "postgresql://user:password@host/name"
    )


def _load(target: str) -> Registry:
    # As with any server that takes module:object, what lies in the current folder can be named.
    sys.path.insert(0, str(Path.cwd()))
    registry = load_registry(target)
    # An application that sets up logging with dictConfig switches off the loggers that exist by then.
    logs.logger.disabled = False
    return registry


def _served(registry: Registry, asked: Mapping[str, int] | None) -> Mapping[str, int]:
    """The queues to serve. That some handler names one of them is checked by the runner; a typo in one is told here."""
    if asked is None:
        return dict.fromkeys(registry.queues, DEFAULT_CONCURRENCY)
    for queue in asked:
        if queue not in registry.queues:
            near = (
                hint(queue, registry.queues) or ": only jobs enqueued with this queue by name are found there"
            )
            logs.logger.warning("no handler names the queue %r%s", queue, near)
    return asked


def main() -> NoReturn:
    """The command `sa-jobqueue`. Always ends the process, with one of the documented exit codes."""
    try:
        cli()
    except Exception:  # shown as Python would, but for passwords
        sys.stderr.write(hide_passwords(traceback.format_exc()))
    raise SystemExit(1)
