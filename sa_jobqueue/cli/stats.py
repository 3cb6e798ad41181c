"""`sa-jobqueue stats`: the numbers of the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sa_jobqueue.cli.connect import with_database
from sa_jobqueue.cli.exits import OPERATOR_EXIT_CODES
from sa_jobqueue.cli.output import as_json as jsonable
from sa_jobqueue.cli.output import json_line, note, terminal_width
from sa_jobqueue.cli.table import Column, lines
from sa_jobqueue.cli.when import span
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.inspection import COUNTED, read_stats

if TYPE_CHECKING:
    from datetime import timedelta

    from sa_jobqueue.cli.connect import Database
    from sa_jobqueue.views import QueueStats, Stats

_COLUMNS = (
    Column("QUEUE", least=10),
    *(Column(title, right=True) for title in ("DUE", "OLDEST DUE", "SCHEDULED", "RUNNING", "LONGEST")),
    *(Column(title, right=True) for title in ("DEAD", "DONE", "CANCELLED", "EXPIRED")),
)


@click.command(epilog=OPERATOR_EXIT_CODES)
@click.option(
    "--exact", is_flag=True, help=f"Count all finished jobs, not {COUNTED:,} of each status at most."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: now, queues, total, at_least.")
@with_database
def stats(*, database: Database, exact: bool, as_json: bool) -> None:
    """Show how many jobs each queue has, and how long the oldest wait.

    \b
      sa-jobqueue stats
      sa-jobqueue stats --json | jq .total.oldest_due

    OLDEST DUE is what to watch: how long the first due job has waited. LONGEST is how long ago the earliest running job
    fell due: it runs for at most that long. EXPIRED are running jobs of lost runners, before their rescue. Ready and
    running jobs are counted exactly, through their indexes; of the finished ones at most so many of each status, and
    "+" says that there are more.
    """
    with database.transaction() as connection:
        numbers = read_stats(connection, most=None if exact else COUNTED)
    if as_json:
        click.echo(json_line({**jsonable(numbers), "total": numbers.total}))
        return
    if not numbers.queues:
        click.echo("No jobs.")
        return
    shown = [*numbers.queues, *([numbers.total] if len(numbers.queues) > 1 else [])]
    click.echo("\n".join(lines(_COLUMNS, [_row(one, numbers) for one in shown], width=terminal_width())))
    if numbers.total.expired:
        note(f"expired leases: {numbers.total.expired:,}; any runner takes these jobs back, is one running?")


def _row(queue: QueueStats, numbers: Stats) -> tuple[str, ...]:
    def finished(status: JobStatus) -> str:
        return f"{getattr(queue, status)}{'+' if status in numbers.at_least else ''}"

    def age(duration: timedelta | None) -> str:
        return "-" if duration is None else span(duration)

    return (
        queue.queue,
        *(str(queue.due), age(queue.oldest_due), str(queue.scheduled)),
        *(str(queue.running), age(queue.oldest_running)),
        *map(finished, (JobStatus.DEAD, JobStatus.DONE, JobStatus.CANCELLED)),
        str(queue.expired),
    )
