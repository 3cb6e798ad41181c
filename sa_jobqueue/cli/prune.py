"""`sa-jobqueue prune`: finished jobs that were kept long enough go, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from sa_jobqueue import admin
from sa_jobqueue.cli.asking import Progress, confirm
from sa_jobqueue.cli.connect import with_database
from sa_jobqueue.cli.exits import INCOMPLETE, INTERRUPTED, OPERATOR_EXIT_CODES
from sa_jobqueue.cli.options import duration
from sa_jobqueue.cli.output import jobs_counted, json_line, note
from sa_jobqueue.durations import format_duration
from sa_jobqueue.states import TERMINAL, JobStatus
from sa_jobqueue.store.bounds import check_at_once
from sa_jobqueue.terminal import safe

if TYPE_CHECKING:
    from sa_jobqueue.cli.connect import Database

_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Swept:
    """What became of the jobs of one status: so many were deleted, so many had to stay, the first of them for `fault`."""

    status: JobStatus
    deleted: int = 0
    refused: int = 0
    fault: str | None = None


@click.command(epilog=OPERATOR_EXIT_CODES)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([str(status) for status in TERMINAL]),
    default=(str(JobStatus.DONE), str(JobStatus.CANCELLED)),
    show_default=True,
    help="Which finished jobs; may be given several times. Dead ones go when they are named.",
)
@click.option(
    "--older-than",
    callback=duration,
    metavar="DURATION",
    default="3d",
    show_default=True,
    help="Finished longer ago than this: 12h, 3d.",
)
@click.option("--dry-run", is_flag=True, help="Count them and delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per status and line.")
@with_database
@click.pass_context
def prune(
    ctx: click.Context,
    *,
    database: Database,
    statuses: tuple[str, ...],
    older_than: timedelta,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete finished jobs that were kept long enough; their idempotency keys go with them.

    \b
      sa-jobqueue prune --dry-run
      sa-jobqueue prune --status dead --older-than 90d
      sa-jobqueue prune --older-than 12h --yes

    The oldest go first, 500 in a transaction. What somebody has locked is left for the next time; what an application's
    foreign key keeps is counted and told.
    """
    wanted = tuple(JobStatus(status) for status in dict.fromkeys(statuses))
    counts = {}
    for status in wanted:
        with database.transaction() as connection:
            counts[status] = admin.count_prunable(connection, status=status, older_than=older_than)
    total = sum(counts.values())
    listed = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    what = f"{jobs_counted(total)} ({listed}) older than {format_duration(older_than)}"
    if dry_run:
        for status, number in counts.items():
            if as_json:
                click.echo(json_line({"status": status, "prunable": number, "dry_run": True}))
        if not as_json:
            click.echo(f"Would prune {what}; nothing was deleted.")
        return
    if total:
        confirm(f"Prune {what}?", yes=yes)
    ctx.exit(_prune(database, wanted, older_than, total, as_json=as_json))


def _prune(
    database: Database, statuses: tuple[JobStatus, ...], older_than: timedelta, total: int, *, as_json: bool
) -> int:
    swept = [_Swept(status) for status in statuses]
    progress = Progress(total, least=_BATCH)
    interrupted = False
    try:
        for index, status in enumerate(statuses):
            position, more = None, True
            while more:
                with database.transaction() as connection:
                    check_at_once(connection)  # or the commit would fail, with all of the batch
                    batch = admin.prune(
                        connection, status=status, older_than=older_than, limit=_BATCH, position=position
                    )
                # Counted once it is committed.
                position, more, so_far = batch.position, batch.more, swept[index]
                swept[index] = replace(
                    so_far,
                    deleted=so_far.deleted + batch.count,
                    refused=so_far.refused + batch.refused,
                    fault=so_far.fault or batch.fault,
                )
                progress.show(sum(one.deleted for one in swept))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
        _tell(swept, as_json=as_json)
    if interrupted:
        note("interrupted: what was pruned until now stays pruned")
        return INTERRUPTED
    return INCOMPLETE if any(one.refused for one in swept) else 0


def _tell(swept: list[_Swept], *, as_json: bool) -> None:
    for one in swept:
        if as_json:
            click.echo(json_line(one))
        else:
            click.echo(f"{one.deleted:,} {one.status} pruned")
        if one.refused:
            note(
                f"{one.status} jobs that have to stay: {one.refused:,}, the first for: {safe(one.fault or '')}; "
                "delete what refers to them, or let the foreign key say ON DELETE CASCADE or SET NULL"
            )
