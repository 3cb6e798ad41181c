"""Which jobs a verb is meant for: ids that were typed, or everything that fits a filter now."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sa_jobqueue.cli.exits import CommandError
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb
from sa_jobqueue.store import inspection
from sa_jobqueue.views import JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from sa_jobqueue.cli.connect import Database
    from sa_jobqueue.views import JobSummary

#: Jobs of one look at the filter.
_PAGE = 1_000
SAMPLE = 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """The ids, how many there are of each status, the first few for a look, and the filter that chose them."""

    ids: tuple[int, ...]
    statuses: Counter[JobStatus]
    sample: tuple[JobSummary, ...]
    by: JobFilter | None

    def still(self, connection: Connection, ids: list[int]) -> list[int]:
        """Those that fit the filter now: somebody took their time over the question, and the queue has gone on."""
        if self.by is None:
            return ids
        page = inspection.page(connection, replace(self.by, ids=tuple(ids)), limit=len(ids))
        fit = {job.id for job in page.jobs}
        return [job_id for job_id in ids if job_id in fit]


def check(verb: Verb, ids: tuple[int, ...], wanted: JobFilter, *, everything: bool) -> JobFilter | None:
    """The filter that is meant, None for ids. Raises CommandError for none, for two ways at once, and for a filter by a
    status that the verb can't leave.

    A filter without a status means the statuses that the verb leaves.
    """
    given = [bool(ids), not wanted.everything, everything]
    if not any(given):
        raise CommandError(
            f"which jobs? Give ids (sa-jobqueue jobs {verb} 7 8), a filter (--status, --kind, --queue, --key, --due), "
            "or --all"
        )
    if sum(given) > 1:
        raise CommandError("give ids, a filter, or --all: one of the three")
    if ids:
        return None
    sources = TRANSITIONS[verb].sources
    wrong = [status for status in wanted.statuses if status not in sources]
    if wrong:
        raise CommandError(
            f"{verb} is for jobs that are {' or '.join(sources)}, not {' or '.join(wrong)}: "
            f"leave out --status {wrong[0]}"
        )
    return replace(wanted, statuses=wanted.statuses or sources)


def choose(database: Database, ids: tuple[int, ...], wanted: JobFilter | None) -> Chosen:
    """Every job that is meant, read in short transactions. Ids without a job are kept, for the answer to say so."""
    found: dict[int, JobStatus] = {}
    sample: list[JobSummary] = []
    typed = list(dict.fromkeys(ids))
    pages = (
        _pages(database, wanted)
        if wanted is not None
        else (_listed(database, typed[start : start + _PAGE]) for start in range(0, len(typed), _PAGE))
    )
    for jobs in pages:
        sample += jobs[: SAMPLE - len(sample)]
        found |= {job.id: job.status for job in jobs}
    return Chosen(
        tuple(found) if wanted is not None else tuple(typed), Counter(found.values()), tuple(sample), wanted
    )


def _pages(database: Database, wanted: JobFilter) -> Iterator[tuple[JobSummary, ...]]:
    before: int | None = None
    while True:
        with database.transaction() as connection:
            page = inspection.page(connection, wanted, limit=_PAGE, before=before)
        yield page.jobs
        if page.before is None:
            return
        before = page.before


def _listed(database: Database, ids: list[int]) -> tuple[JobSummary, ...]:
    with database.transaction() as connection:
        return inspection.page(connection, JobFilter(ids=tuple(ids)), limit=len(ids)).jobs
