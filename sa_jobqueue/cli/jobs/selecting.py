"""The options that choose jobs, and the filter that they become."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from sa_jobqueue.cli.exits import CommandError
from sa_jobqueue.records import LARGEST_ID
from sa_jobqueue.states import JobStatus
from sa_jobqueue.views import JobFilter

if TYPE_CHECKING:
    from collections.abc import Callable


class _JobId(click.IntRange):
    name = "job id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value!r} is no job id: ids are whole numbers from 1, see: sa-jobqueue jobs list",
                param,
                ctx,
            )


JOB_ID = _JobId(1, LARGEST_ID)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a filter; the command gets what they choose as `wanted`."""

    @click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice([str(status) for status in JobStatus]),
        help="Jobs of this status. May be given several times, as --kind and --queue.",
    )
    @click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Jobs of this kind.")
    @click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Jobs in this queue.")
    @click.option("--key", metavar="KEY", help="Jobs with this idempotency key.")
    @click.option("--due", is_flag=True, help="Ready jobs whose time has come.")
    @functools.wraps(command)
    def call(
        *arguments: Any,
        statuses: tuple[str, ...],
        kinds: tuple[str, ...],
        queues: tuple[str, ...],
        key: str | None,
        due: bool,
        **options: Any,
    ) -> Any:
        chosen = tuple(JobStatus(status) for status in statuses)
        for text in (*kinds, *queues, key or ""):
            if not _storable(text):
                raise CommandError(f"{text!r} can't be the kind, queue or key of a job")
        try:
            wanted = JobFilter(statuses=chosen, kinds=kinds, queues=queues, key=key, due=due)
        except ValueError as error:
            raise CommandError(str(error)) from error
        return command(*arguments, wanted=wanted, **options)

    return call


def _storable(text: str) -> bool:
    """A column can hold it: no NUL, and bytes of an argument that were no UTF-8 are in it as surrogates."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
