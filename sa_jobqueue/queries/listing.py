"""A page of jobs, the newest first by id: one statement per way to find them, each bounded whatever lies in the table.

No index has the order of ids within a filter, and a planner that guesses how far apart the matches lie may read
millions of rows for a page. So each way says for itself what it reads: a few ids, the newest rows, the rows of a status
through its index (worth it when `population` is small), or one window of the primary key, filtered. Which way to take
is decided in `store.inspection`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BigInteger, Text, any_, bindparam, cast, func, select, true, union_all

from sa_jobqueue.models import jobs, schema_in_use
from sa_jobqueue.queries.summary import summary
from sa_jobqueue.sql import array, keys, moment, number, status
from sa_jobqueue.states import TERMINAL, JobStatus

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, FromClause, Select

#: Rows of the primary key that one walk looks at.
WINDOW = 2_000
#: Up to so many jobs of the wanted statuses are read through their index and sorted.
FEW = 10_000


class Shape(NamedTuple):
    """What a filter names: the statuses themselves, for they stand in the text, of the others whether they are given."""

    statuses: tuple[JobStatus, ...] = ()
    kinds: bool = False
    queues: bool = False
    key: bool = False
    due: bool = False


@cache
def newest() -> Select[Any]:
    """The newest `amount` jobs with ids below `before`."""
    schema_in_use()
    job = jobs.alias("job")
    found = select(*summary(job)).where(job.c.id < _before()).order_by(job.c.id.desc()).limit(_amount())
    return _told(found)


@cache
def of_ids(shape: Shape) -> Select[Any]:
    """Those of `ids` that fit the filter and are below `before`, at most `amount`."""
    schema_in_use()
    job = jobs.alias("job")
    wanted = job.c.id == any_(keys("ids", BigInteger))
    return _told(_page(select(job).where(wanted).offset(number(0)), shape))


@cache
def of_statuses(shape: Shape) -> Select[Any]:
    """The same among all jobs of the filter's statuses, each read through the index that holds it."""
    schema_in_use()
    branches = []
    for rank, wanted in enumerate(shape.statuses):
        job = jobs.alias(f"job_{rank}")
        # OFFSET 0 keeps the order of the page out of the branch: for it the planner would walk the primary key.
        branches.append(select(job).where(*_in_index(job, wanted), *_queues(job, shape)).offset(number(0)))
    return _told(_page(union_all(*branches), shape))


@cache
def population(shape: Shape) -> Select[Any]:
    """How many jobs have the filter's statuses, counted up to `FEW` + 1 of each; of ready ones in its queues alone.

    Reads indexes alone. A planner without any statistics may gather the entries of a whole status first.
    """
    schema_in_use()
    counts = []
    for rank, wanted in enumerate(shape.statuses):
        job = jobs.alias(f"job_{rank}")
        queues = _queues(job, shape) if wanted is JobStatus.READY else []
        some = select(number(1).label("one")).where(*_in_index(job, wanted), *queues).limit(number(FEW + 1))
        counted = some.select_from(job).subquery(f"some_{rank}")
        counts.append(select(func.count()).select_from(counted).scalar_subquery())
    return select(sum(counts[1:], start=counts[0]))


@cache
def window(shape: Shape) -> Select[Any]:
    """The same among the newest `WINDOW` jobs below `before`; `edge` is the id of the last of them, NULL at the end."""
    schema_in_use()
    below, job = jobs.alias("below"), jobs.alias("job")
    edge = (
        select(below.c.id)
        .where(below.c.id < _before())
        .order_by(below.c.id.desc())
        .offset(number(WINDOW - 1))
        .limit(number(1))
        .scalar_subquery()
    )
    rows = select(job).where(job.c.id < _before()).order_by(job.c.id.desc()).limit(number(WINDOW))
    return _told(_page(rows, shape), edge.label("edge"))


@cache
def holder(shape: Shape) -> Select[Any]:
    """The one job that holds `key` now, when it fits the filter."""
    schema_in_use()
    job = jobs.alias("job")
    return _told(_page(select(job).where(job.c.unique_key == _key()).offset(number(0)), shape))


def _page(rows: Any, shape: Shape) -> Select[Any]:
    row = rows.subquery("row")
    return (
        select(*summary(row))
        .where(row.c.id < _before(), *_conditions(row, shape))
        .order_by(row.c.id.desc())
        .limit(_amount())
    )


def _told(found: Select[Any], *more: ColumnElement[Any]) -> Select[Any]:
    """The page with the time; with nothing found one row that tells the time alone."""
    read = select(moment().label("now"), *more).subquery("read")
    page = found.subquery("page")
    return select(read, page).select_from(read.outerjoin(page, true())).order_by(page.c.id.desc())


def _conditions(job: FromClause, shape: Shape) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = _queues(job, shape)
    if shape.statuses:
        conditions.append(job.c.status.in_([status(wanted) for wanted in shape.statuses]))
    if shape.kinds:
        conditions.append(job.c.kind == any_(array("kinds", Text)))
    if shape.key:
        conditions.append(job.c.idempotency_key == _key())
    if shape.due:
        conditions.append(job.c.run_at <= moment())
    return conditions


def _queues(job: FromClause, shape: Shape) -> list[ColumnElement[bool]]:
    return [job.c.queue == any_(array("queues", Text))] if shape.queues else []


def _in_index(job: FromClause, wanted: JobStatus) -> list[ColumnElement[bool]]:
    finished = [job.c.finished_at.is_not(None)] if wanted in TERMINAL else []
    return [job.c.status == status(wanted), *finished]


def _before() -> ColumnElement[int]:
    return cast(bindparam("before", type_=BigInteger), BigInteger)


def _amount() -> ColumnElement[int]:
    return cast(bindparam("amount", type_=BigInteger), BigInteger)


def _key() -> ColumnElement[str]:
    return cast(bindparam("key", type_=Text), Text)
