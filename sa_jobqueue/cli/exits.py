"""Exit codes of the command, and the errors that carry them."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

import click

from sa_jobqueue.database import hide_passwords

EXIT_CODES = """\b
Exit codes:
  0      stopped cleanly, or --burst found no more due jobs that can be claimed
  1      unexpected error, or --burst and the database lets it claim nothing
  2      usage: an option, the database URL, the module or the queues can't be used
  3      the database server can't be reached at the start
  4      the queue's tables are missing or older than this release needs
  7      the grace period passed: running jobs were handed back, or outcomes could not be written
  128+n  forced by a second signal n
"""

OPERATOR_EXIT_CODES = """\b
Exit codes:
  0      done as asked; a list without jobs too
  1      some jobs did not go, there is no such job, nobody confirmed, or an unexpected error
  2      usage: an option or the database URL can't be used, or --yes is missing without a terminal
  3      the database server can't be reached
  4      the queue's tables are missing or older than this release needs
  130    interrupted; what was done until then stays done
"""
#: Some jobs didn't go, or there is no such job.
INCOMPLETE = 1
INTERRUPTED = 130


class CommandError(click.ClickException):
    """Trouble with what was asked for; the message is all that is shown."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(hide_passwords(message))


class TroubleError(CommandError):
    """The database refused what was asked of it, or has no such job."""

    exit_code = INCOMPLETE


class UnreachableError(CommandError):
    """The database server doesn't answer."""

    exit_code = 3


class SchemaError(CommandError):
    """The queue's tables aren't there, or not those of this release."""

    exit_code = 4


def exit_hard(code: int) -> NoReturn:
    """Handlers may still run and their jobs belong to somebody else by now: nothing may wait for their threads."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
