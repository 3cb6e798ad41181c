"""The group `jobs` and its commands."""

from __future__ import annotations

import click

from sa_jobqueue.cli.exits import OPERATOR_EXIT_CODES
from sa_jobqueue.cli.groups import Group
from sa_jobqueue.cli.jobs.listing import list_jobs
from sa_jobqueue.cli.jobs.showing import show
from sa_jobqueue.cli.jobs.verbs import cancel, redrive, reschedule


@click.group(cls=Group, epilog=OPERATOR_EXIT_CODES)
def jobs() -> None:
    """Look at jobs and act on them.

    \b
      sa-jobqueue jobs list --status dead
      sa-jobqueue jobs show 7
      sa-jobqueue jobs redrive --status dead --kind document.embed
    """


for _command in (list_jobs, show, cancel, redrive, reschedule):
    jobs.add_command(_command)
