"""A verb on many jobs: one short transaction per batch, what is done stays done, and an account at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.cli.asking import Progress
from sa_jobqueue.cli.exits import INCOMPLETE, INTERRUPTED
from sa_jobqueue.cli.output import json_line, note, safe
from sa_jobqueue.failures import headline
from sa_jobqueue.records import OperatorResult
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.trouble import because_of_a_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from sa_jobqueue.cli.connect import Database
    from sa_jobqueue.cli.jobs.choosing import Chosen

    Act = Callable[[Connection, list[int]], list[OperatorResult]]

BATCH = 500
#: So many jobs that did not go are told one by one.
_TOLD = 20
#: Once a batch has waited in vain for a lock, each part of it waits for so long.
_IMPATIENT = "1s"
_CHANGED = "it doesn't fit the filter any more"
_NOT_FOR_ROWS = ("42",)  # a right or a table that is missing is missing for every row


def act(database: Database, chosen: Chosen, verb: Act, *, done: str, as_json: bool) -> int:
    """Do it to all of them, tell what became of each or of how many, and return the exit code."""
    results: list[OperatorResult] = []
    progress = Progress(len(chosen.ids), least=BATCH)
    interrupted = False
    try:
        for batch in _batches(chosen.ids):
            answers = list(_attempt(database, chosen, batch, verb))
            results += answers
            if as_json:
                for result in answers:
                    click.echo(json_line(result))
            progress.show(len(results))
    except KeyboardInterrupt:
        interrupted = True
    finally:  # also when the server goes away: what is done is told before what went wrong
        progress.close()
        untried = len(chosen.ids) - len(results)
        if not as_json:
            _tell(results, done)
        if untried:
            note(f"left: {untried:,}; a batch that was under way may have gone through all the same")
    if interrupted:
        return INTERRUPTED
    return 0 if all(result.landed for result in results) else INCOMPLETE


def _attempt(
    database: Database, chosen: Chosen, ids: list[int], verb: Act, **bounds: str
) -> Iterator[OperatorResult]:
    """The batch in one transaction; when a row of it is refused or stays locked, its halves."""
    try:
        with database.transaction(**bounds) as connection:
            fit = chosen.still(connection, ids)
            answers = {answer.id: answer for answer in verb(connection, fit)} if fit else {}
    except DBAPIError as error:
        sqlstate = getattr(error.orig, "sqlstate", None) or ""
        if not because_of_a_row(error) or sqlstate.startswith(_NOT_FOR_ROWS):
            raise
        if len(ids) == 1:
            yield OperatorResult(ids[0], landed=False, status=None, reason=headline(error.orig or error))
            return
        middle = len(ids) // 2
        for half in (ids[:middle], ids[middle:]):
            yield from _attempt(database, chosen, half, verb, lock_timeout=_IMPATIENT)
        return
    for job_id in ids:
        yield answers.get(job_id) or OperatorResult(job_id, landed=False, status=None, reason=_CHANGED)


def _batches(ids: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), BATCH):
        yield list(ids[start : start + BATCH])


def _tell(results: Sequence[OperatorResult], done: str) -> None:
    """A single job's own line, or how many went and which did not."""
    outcomes = Counter(_outcome(result, done) for result in results if result.landed)
    left = [result for result in results if not result.landed]
    if len(results) == 1 and not left:
        (only,) = results
        click.echo(f"job {only.id}: {_outcome(only, done)}")
    else:
        for outcome, number in outcomes.items():
            click.echo(f"{number:,} {outcome}")
    for result in left[:_TOLD]:
        note(f"job {result.id}: not {done}: {safe(result.reason or '')}")
    if len(left) > _TOLD:
        note(f"and {len(left) - _TOLD:,} more that were not {done}; --json tells of each")


def _outcome(result: OperatorResult, done: str) -> str:
    if result.status is JobStatus.RUNNING:
        return "asked to stop; the runner sees it at its next renewal, and the job is cancelled unless it is done first"
    return done
