"""`sa-jobqueue run module:registry`: options become settings, and trouble one message and an exit code.

What a runner does is `runner`'s business.
"""

from __future__ import annotations

import gc
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from sqlalchemy.exc import OperationalError

from sa_jobqueue import logs
from sa_jobqueue.cli import connect
from sa_jobqueue.cli.connect import database_options
from sa_jobqueue.cli.exits import EXIT_CODES, CommandError, SchemaError, exit_hard
from sa_jobqueue.cli.options import duration_option, option, queues, retention_option, timeout
from sa_jobqueue.errors import ConfigurationError, SchemaVersionError
from sa_jobqueue.loading import load_registry
from sa_jobqueue.models import configure
from sa_jobqueue.models import metadata as tables
from sa_jobqueue.names import check_name, hint
from sa_jobqueue.runner import Retention, Runner, RunnerSettings
from sa_jobqueue.runner.ending import FORCED
from sa_jobqueue.runner.settings import DEFAULT_CONCURRENCY
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import URL

    from sa_jobqueue.logs.formats import LogFormat
    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner import QueueSettings

_DEFAULTS = RunnerSettings()


@click.command(epilog=EXIT_CODES)
@click.argument("target", metavar="MODULE:REGISTRY")
@option(
    "--queues",
    callback=queues,
    metavar="NAME:NUMBER@EXECUTOR,...",
    help="Queues to serve, how many of their jobs may run at once, and where: thread or asyncio, which is what queues "
    "with an async handler get by themselves. Default: every queue that a handler names, "
    f"{DEFAULT_CONCURRENCY} each.",
)
@duration_option(
    "--lease",
    _DEFAULTS.lease,
    "How long a claimed job stays this runner's without a renewal: what a crash costs",
)
@duration_option(
    "--poll-interval", _DEFAULTS.poll_interval, "How long an idle runner waits before it looks again"
)
@duration_option(
    "--rescue-interval", _DEFAULTS.rescue_interval, "How often jobs of lost runners are looked for"
)
@retention_option(JobStatus.DONE, _DEFAULTS.retention.done)
@retention_option(JobStatus.CANCELLED, _DEFAULTS.retention.cancelled)
@retention_option(JobStatus.DEAD, _DEFAULTS.retention.dead)
@duration_option(
    "--prune-interval", _DEFAULTS.prune_interval, "How often jobs that were kept for long enough are deleted"
)
@option(
    "--timeout",
    callback=timeout,
    metavar="DURATION",
    default="never",
    help="How long a handler may run that names no timeout of its own, or never for no limit. Written as 500ms, 10s, 2m "
    "or 1h30m.",
)
@duration_option(
    "--grace",
    _DEFAULTS.grace,
    "How long running jobs may take after the first signal (while the database is away, the end may take some "
    "10s more)",
)
@click.option("--burst", is_flag=True, help="Stop when no job is due.")
@database_options
@option(
    "--listen-url",
    metavar="URL",
    help="Where to listen for commits that add jobs, when the database is reached through a transaction pooler: a "
    "direct address of the same database. Default: the database's own.",
)
@option(
    "--no-listen",
    is_flag=True,
    help="Don't listen: look for jobs once in every poll interval, and no sooner.",
)
@option("--name", help="This runner's name. Default: host and process.")
@option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    help="A line for people, or a JSON object per line for machines; both on standard error.",
)
@option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    help="The least grave events that are logged.",
)
@click.pass_context
def run(
    ctx: click.Context,
    *,
    target: str,
    queues: dict[str, int | QueueSettings] | None,
    lease: timedelta,
    poll_interval: timedelta,
    rescue_interval: timedelta,
    keep_done: timedelta | None,
    keep_cancelled: timedelta | None,
    keep_dead: timedelta | None,
    prune_interval: timedelta,
    timeout: timedelta | None,
    grace: timedelta,
    burst: bool,
    database_url: str | None,
    schema: str | None,
    listen_url: str | None,
    no_listen: bool,
    name: str | None,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Run the jobs of a registry: `sa-jobqueue run myapp.jobs:jobs`.

    The current folder is importable. A first signal (INT, TERM) stops the runner gracefully, a second one, half a second
    later or more, at once.
    """
    # Before the application is imported, so that what it logs then is seen.
    logs.set_up_logging(log_format, log_level, sys.stderr)
    try:
        url = connect.database_url(database_url)
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
            rescue_interval=rescue_interval,
            retention=Retention(done=keep_done, cancelled=keep_cancelled, dead=keep_dead),
            prune_interval=prune_interval,
            timeout=timeout,
            grace=grace,
            burst=burst,
            listen=not no_listen,
            listen_url=listen_url or None,
            name=name and check_name("--name", name),
        )
    except (ConfigurationError, ValueError) as error:
        raise CommandError(str(error)) from error
    code = _run(registry, url, settings)
    if code:
        exit_hard(code)
    ctx.exit(code)


def _run(registry: Registry, url: URL, settings: RunnerSettings) -> int:
    # What the imports made stays, so no full collection need walk through it: with SQLAlchemy alone that stops every
    # handler for some 50 ms, each time some ten thousand jobs have gone by.
    gc.collect()
    gc.freeze()
    try:
        code = Runner(registry, url, settings, subscribers=[logs.log_event]).run(handle_signals=True)
        if code > FORCED:
            logs.logger.warning(
                "ended at once by a second %s: what was running is taken back when its lease has ended",
                signal.Signals(code - FORCED).name,
            )
        return code
    except SchemaVersionError as error:
        raise SchemaError(str(error)) from error
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except OperationalError as error:
        raise connect.unreachable(error, url) from error


def _load(target: str) -> Registry:
    # As with any server that takes module:object, what lies in the current folder can be named.
    sys.path.insert(0, str(Path.cwd()))
    registry = load_registry(target)
    # An application that sets up logging with dictConfig switches off the loggers that exist by then.
    logs.logger.disabled = False
    return registry


def _served(
    registry: Registry, asked: Mapping[str, int | QueueSettings] | None
) -> Mapping[str, int | QueueSettings] | None:
    """The queues to serve. That some handler names one of them is checked by the runner; a typo in one is told here."""
    for queue in asked or ():
        if queue not in registry.queues:
            near = (
                hint(queue, registry.queues) or ": only jobs enqueued with this queue by name are found there"
            )
            logs.logger.warning("no handler names the queue %r%s", queue, near)
    return asked
