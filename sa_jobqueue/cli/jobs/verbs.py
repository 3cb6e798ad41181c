"""`sa-jobqueue jobs cancel|redrive|reschedule`: options become a choice of jobs and a verb."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from sa_jobqueue.admin import cancel as cancel_jobs
from sa_jobqueue.admin import redrive as redrive_jobs
from sa_jobqueue.admin import reschedule as reschedule_jobs
from sa_jobqueue.cli.asking import confirm
from sa_jobqueue.cli.connect import with_database
from sa_jobqueue.cli.exits import OPERATOR_EXIT_CODES, CommandError
from sa_jobqueue.cli.jobs.acting import act
from sa_jobqueue.cli.jobs.choosing import check, choose
from sa_jobqueue.cli.jobs.listing import table
from sa_jobqueue.cli.jobs.selecting import JOB_ID, filter_options
from sa_jobqueue.cli.options import optional_duration
from sa_jobqueue.cli.output import jobs_counted, json_line, note
from sa_jobqueue.records import HIGHEST_PRIORITY, LOWEST_PRIORITY
from sa_jobqueue.states import Verb
from sa_jobqueue.views import JobPage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue.cli.connect import Database
    from sa_jobqueue.cli.jobs.acting import Act
    from sa_jobqueue.cli.jobs.choosing import Chosen
    from sa_jobqueue.views import JobFilter


def verb(name: Verb, *, done: str) -> Callable[[Callable[..., Act]], click.Command]:
    """A command that does to chosen jobs what the decorated function makes of the other options."""

    def decorate(make: Callable[..., Act]) -> click.Command:
        own = [*getattr(make, "__click_params__", ())]
        copied: Callable[[Any], Any] = functools.wraps(make)  # its help and its options

        @click.command(str(name), epilog=OPERATOR_EXIT_CODES)
        @click.argument("ids", metavar="[ID]...", nargs=-1, type=JOB_ID)
        @filter_options
        @click.option("--all", "everything", is_flag=True, help="Every job that this verb is for.")
        @click.option("--dry-run", is_flag=True, help="Show which jobs are meant and change nothing.")
        @click.option("--yes", "-y", is_flag=True, help="Don't ask.")
        @click.option("--json", "as_json", is_flag=True, help="One JSON object per job and line.")
        @with_database
        @click.pass_context
        @copied
        def command(
            ctx: click.Context,
            *,
            database: Database,
            ids: tuple[int, ...],
            wanted: JobFilter,
            everything: bool,
            dry_run: bool,
            yes: bool,
            as_json: bool,
            **options: Any,
        ) -> None:
            by = check(name, ids, wanted, everything=everything)
            what = make(**options)
            chosen = choose(database, ids, by)
            if dry_run:
                _show(database, chosen, name, as_json=as_json)
                return
            if not chosen.ids:
                note("No jobs fit.")
                return
            if by is not None or len(chosen.ids) > 1:
                confirm(f"{str(name).capitalize()} {_counted(chosen)}?", yes=yes)
            ctx.exit(act(database, chosen, what, done=done, as_json=as_json))

        command.params.sort(key=lambda param: param not in own)  # what is special about the verb comes first
        return command

    return decorate


@verb(Verb.CANCEL, done="cancelled")
def cancel() -> Act:
    """Cancel jobs: waiting ones at once, running ones are asked to stop.

    \b
      sa-jobqueue jobs cancel 7
      sa-jobqueue jobs cancel --status ready --kind document.embed --dry-run
      sa-jobqueue jobs cancel --queue ai --yes --json | jq 'select(.landed | not)'

    A running job's runner sees the request at its next renewal. A job that is done first stays done.
    """
    return cancel_jobs


@verb(Verb.REDRIVE, done="ready again")
def redrive() -> Act:
    """Send dead or cancelled jobs back to ready, with a new budget of attempts.

    \b
      sa-jobqueue jobs redrive 7 8
      sa-jobqueue jobs redrive --status dead --kind document.embed --queue ai

    A job whose idempotency key another job holds by now stays where it is.
    """
    return redrive_jobs


@verb(Verb.RESCHEDULE, done="rescheduled")
@click.option("--at", metavar="TIME", help="When to run: 2026-01-31T08:00+01:00, or with Z for UTC.")
@click.option(
    "--in", "delay", callback=optional_duration, metavar="DURATION", help="How long from now: 10m or 1h30m."
)
@click.option("--now", "at_once", is_flag=True, help="At once.")
@click.option(
    "--priority",
    type=click.IntRange(HIGHEST_PRIORITY, LOWEST_PRIORITY),
    help="The new priority; 0 goes first.",
)
def reschedule(*, at: str | None, delay: timedelta | None, at_once: bool, priority: int | None) -> Act:
    """Give ready jobs another time, another priority, or both.

    \b
      sa-jobqueue jobs reschedule 7 --now --priority 0
      sa-jobqueue jobs reschedule --queue ai --due --in 10m
    """
    if [at is not None, delay is not None, at_once].count(True) > 1:
        raise CommandError("--at, --in and --now: give one of the three")
    if at is None and delay is None and not at_once and priority is None:
        raise CommandError("nothing to change: give --now, --in 10m, --at 2026-01-31T08:00Z, or --priority 0")
    run_at = None if at is None else _time(at)
    if at_once:
        delay = timedelta(0)
    return functools.partial(reschedule_jobs, run_at=run_at, delay=delay, priority=priority)


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--at: {text!r} is no time: write it as 2026-01-31T08:00+01:00") from None
    if moment.tzinfo is None:
        raise CommandError(
            f"--at: {text!r} names no zone: write {text}Z for UTC, or for example {text}+01:00"
        )
    return moment


def _counted(chosen: Chosen) -> str:
    missing = len(chosen.ids) - chosen.statuses.total()
    parts = [f"{number:,} {status}" for status, number in chosen.statuses.most_common()]
    parts += [f"{missing:,} unknown"] if missing else []
    return f"{jobs_counted(len(chosen.ids))} ({', '.join(parts)})"


def _show(database: Database, chosen: Chosen, name: Verb, *, as_json: bool) -> None:
    """What is meant, without a write."""
    if as_json:
        for job_id in chosen.ids:
            click.echo(json_line({"id": job_id, "verb": str(name), "dry_run": True}))
        return
    if chosen.sample:
        click.echo("\n".join(table(JobPage(chosen.sample, database.now(), None))))
    if len(chosen.ids) > len(chosen.sample):
        note(f"and {len(chosen.ids) - len(chosen.sample):,} more")
    note(f"Would {name} {_counted(chosen)}; nothing was changed." if chosen.ids else "No jobs fit.")
