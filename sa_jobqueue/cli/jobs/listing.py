"""`sa-jobqueue jobs list`: a page of jobs as a table for people, or as JSON lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sa_jobqueue.cli.connect import with_database
from sa_jobqueue.cli.exits import OPERATOR_EXIT_CODES
from sa_jobqueue.cli.jobs.selecting import JOB_ID, filter_options
from sa_jobqueue.cli.output import coloured, json_line, note, terminal_width
from sa_jobqueue.cli.secrets import Shown
from sa_jobqueue.cli.table import Column, lines
from sa_jobqueue.cli.when import when
from sa_jobqueue.records import DEFAULT_PRIORITY
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store import inspection

if TYPE_CHECKING:
    from sa_jobqueue.cli.connect import Database
    from sa_jobqueue.views import JobFilter, JobPage, JobProgress, JobSummary

_COLUMNS = (
    Column("ID", right=True),
    Column("STATUS"),
    Column("KIND", least=12),
    Column("QUEUE", least=7),
    Column("PRIORITY", right=True),
    Column("ATTEMPTS", right=True),
    Column("WHEN", least=10),
    Column("NOTE", least=12),
)
_STATUS, _PRIORITY = 1, 4
#: A narrower terminal has no room for a column that says the same in every row.
_ROOMY = 100
_LARGEST_PAGE = 10_000


@click.command("list", epilog=OPERATOR_EXIT_CODES)
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, _LARGEST_PAGE), default=50, show_default=True, help="At most so many."
)
@click.option("--before", type=JOB_ID, metavar="ID", help="Jobs older than this one: the next page.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, times in UTC.")
@with_database
def list_jobs(
    *, database: Database, wanted: JobFilter, limit: int, before: int | None, as_json: bool
) -> None:
    """List jobs, the newest first.

    \b
      sa-jobqueue jobs list
      sa-jobqueue jobs list --status dead --kind document.embed
      sa-jobqueue jobs list --due --queue ai --limit 5
      sa-jobqueue jobs list --status dead --json | jq -r .error | sort | uniq -c

    Times are relative to the database's clock; ATTEMPTS are those that count, of those allowed. A filter of few jobs
    is answered by an index; any other looks at a million jobs at most and then says where to go on.
    """
    with database.transaction() as connection:
        page = inspection.page(connection, wanted, limit=limit, before=before)
    page = replace(page, jobs=tuple(map(Shown(), page.jobs)))
    if as_json:
        for job in page.jobs:
            click.echo(json_line(job))
    elif page.jobs:
        click.echo("\n".join(table(page)))
    else:
        click.echo("No jobs." if page.before is None else "No jobs so far.")
    if page.before is not None and len(page.jobs) < limit:
        note(f"There are older jobs that were not looked at: go on with --before {page.before}")
    elif page.before is not None and not as_json:
        note(f"There may be more: --before {page.before}")


def table(page: JobPage) -> list[str]:
    """The lines of the table."""
    width = terminal_width()
    columns, rows = list(_COLUMNS), [_row(job, page) for job in page.jobs]
    usual = all(job.priority == DEFAULT_PRIORITY for job in page.jobs)
    if width is not None and width < _ROOMY and usual:
        del columns[_PRIORITY]
        for row in rows:
            del row[_PRIORITY]

    def paint(row: int, column: int, cell: str) -> str:
        return coloured(cell, page.jobs[row].status) if column == _STATUS else cell

    return list(lines(columns, rows, width=width, paint=paint))


def _row(job: JobSummary, page: JobPage) -> list[str]:
    return [
        str(job.id),
        job.status,
        job.kind,
        job.queue,
        str(job.priority),
        f"{job.counted_attempts}/{job.max_attempts}",
        when(job, page.now),
        _remark(job),
    ]


def _remark(job: JobSummary) -> str:
    """The reason and the last error, of a running job its progress; a job that is done needs none of them."""
    if job.status is JobStatus.DONE:
        return ""
    running = job.status is JobStatus.RUNNING
    asked = "cancel requested" if running and job.cancel_requested_at else None
    # What an earlier attempt said is no news of this one.
    known = running and job.progress is not None and job.progress.attempt == job.counted_attempts
    progress = told(job.progress).split("\n", 1)[0] if known and job.progress is not None else None
    return ": ".join(part for part in (asked, job.reason, progress, job.error) if part)


def told(progress: JobProgress) -> str:
    """A handler's report for people: "40%, page 12"."""
    share = None
    if progress.fraction is not None:
        percent = round(progress.fraction * 100)
        share = f"{percent if progress.fraction == 1 else min(percent, 99)}%"  # 100% is the end alone
    return ", ".join(part for part in (share, progress.text) if part)
