"""Values of options: durations and queues as people write them, and options that have a variable each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from sa_jobqueue.durations import format_duration, parse_duration
from sa_jobqueue.names import check_name
from sa_jobqueue.runner.settings import DEFAULT_CONCURRENCY, EXECUTORS, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sa_jobqueue.runner.settings import ExecutorName
    from sa_jobqueue.states import JobStatus

FOREVER = "forever"


def option(flag: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that can also be set by `SA_JOBQUEUE_<FLAG>`; its help tells both, and its default."""
    variable = f"SA_JOBQUEUE_{flag.removeprefix('--').replace('-', '_').upper()}"
    usual: dict[str, Any] = {"envvar": variable, "show_envvar": True, "show_default": True}
    return click.option(flag, **usual | settings)


def duration_option(flag: str, default: timedelta, purpose: str) -> Callable[[Any], Any]:
    """An option that takes a duration; its help says how one is written."""
    return option(
        flag,
        callback=duration,
        metavar="DURATION",
        default=format_duration(default),
        help=f"{purpose}. Written as 500ms, 10s, 2m or 1h30m.",
    )


def retention_option(status: JobStatus, default: timedelta | None) -> Callable[[Any], Any]:
    """An option that takes how long jobs of a terminal status are kept."""
    return option(
        f"--keep-{status}",
        callback=retention,
        metavar=f"DURATION|{FOREVER}",
        default=FOREVER if default is None else format_duration(default),
        help=f"How long {status} jobs are kept before they are deleted.",
    )


def retention(ctx: click.Context, param: click.Parameter, text: str) -> timedelta | None:
    """A duration, or None for `forever`."""
    return _duration_or(FOREVER, ctx, param, text)


def timeout(ctx: click.Context, param: click.Parameter, text: str) -> timedelta | None:
    """A duration, or None for `never`."""
    return _duration_or("never", ctx, param, text)


def _duration_or(endless: str, ctx: click.Context, param: click.Parameter, text: str) -> timedelta | None:
    if text.strip().lower() == endless:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or {endless}", ctx, param) from None


def duration(ctx: click.Context, param: click.Parameter, text: str) -> timedelta:
    """`500ms`, `10s`, `2m` as a timedelta; a number without unit is refused."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def optional_duration(ctx: click.Context, param: click.Parameter, text: str | None) -> timedelta | None:
    """The same, for an option that may be left out."""
    return None if text is None else duration(ctx, param, text)


def queues(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> dict[str, int | QueueSettings] | None:
    """`ai:200@asyncio,mail:4,default` with 10 where no number stands; None, for all queues, when nothing was given."""
    if not text:
        return None
    chosen: dict[str, int | QueueSettings] = {}
    for part in text.split(","):
        rest, at, executor = part.strip().partition("@")
        name, _, number = rest.partition(":")
        try:
            check_name("queue", name)
            if name in chosen:
                raise ValueError(f"queue {name!r} is named twice")
            if number and not (number.isascii() and number.isdigit()):
                raise ValueError(f"queue {name!r}: {number!r} is no number")
            if at and executor not in EXECUTORS:
                raise ValueError(
                    f"queue {name!r}: no executor {executor!r}, there is {' or '.join(EXECUTORS)}"
                )
            concurrency = int(number) if number else DEFAULT_CONCURRENCY
            chosen[name] = QueueSettings(concurrency, cast("ExecutorName", executor)) if at else concurrency
        except ValueError as error:
            raise click.BadParameter(f"{error}; write it as ai:200@asyncio,default:10", ctx, param) from None
    return chosen
