"""What commands show of payloads, results and reports: without secrets, unless they are asked for."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sa_jobqueue.redaction import SECRET_NAMES, check_secret_name, redacted
from sa_jobqueue.views import JobDetails, JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    JobT = TypeVar("JobT", bound=JobSummary)

VARIABLE = "SA_JOBQUEUE_REDACT"


class Shown:
    """How jobs are shown: without the values of fields of these names, None to show them all."""

    def __init__(self, names: tuple[str, ...] | None = SECRET_NAMES) -> None:
        self._names = names

    def __call__(self, job: JobT) -> JobT:
        """The job as it may be shown: its payload, result, trace context and progress. Keys and errors stay."""
        if self._names is None:
            return job
        changes: dict[str, Any] = {}
        if job.progress is not None:
            changes["progress"] = replace(job.progress, text=redacted(job.progress.text, self._names))
        if isinstance(job, JobDetails):
            for name in ("payload", "result", "trace_context"):
                changes[name] = redacted(getattr(job, name), self._names)
        return replace(job, **changes)


def secrets_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--redact` and `--show-secrets`, which the command gets as its parameter `shown`."""

    @click.option(
        "--redact",
        multiple=True,
        metavar="NAME",
        callback=_names,
        help=f"Hide fields with NAME in their names too; as often as you like. {VARIABLE} adds more, separated by "
        f"commas. Hidden anyway: {', '.join(SECRET_NAMES)}.",
    )
    @click.option(
        "--show-secrets", is_flag=True, help="Show the values of such fields, and passwords in URLs."
    )
    @functools.wraps(command)
    def call(*arguments: Any, redact: tuple[str, ...], show_secrets: bool, **options: Any) -> Any:
        return command(*arguments, shown=Shown(None if show_secrets else redact), **options)

    return call


def _names(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """All of them: what somebody types takes nothing away from what was hidden before."""
    try:
        return (*SECRET_NAMES, *map(check_secret_name, given), *_of_the_environment())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _of_the_environment() -> Iterator[str]:
    for name in os.environ.get(VARIABLE, "").split(","):
        if name.strip():
            yield check_secret_name(name.strip())
