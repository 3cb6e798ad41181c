"""The text of what people read: literal statuses, the statement's clock, and no lock."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg

from sa_jobqueue.queries import detail, listing, session, stats
from sa_jobqueue.queries.listing import Shape
from sa_jobqueue.states import JobStatus

READY, RUNNING, DONE, DEAD, CANCELLED = JobStatus
FULL = Shape(statuses=(READY, DEAD), kinds=True, queues=True, key=True, due=True)
READS: list[Callable[[], Any]] = [
    listing.newest,
    *(
        partial(form, FULL)
        for form in (
            listing.of_ids,
            listing.of_statuses,
            listing.population,
            listing.window,
            listing.holder,
        )
    ),
    detail.detail,
    session.bounded,
    session.clock,
    stats.waiting,
    stats.running,
    stats.finished,
]


def text_of(build: Callable[[], Any]) -> str:
    return re.sub(r"\s+", " ", str(build().compile(dialect=psycopg.dialect())))


@pytest.mark.parametrize("build", READS)
def test_a_read_locks_nothing(build: Callable[[], Any]) -> None:
    """Looking must never stand in a runner's way."""
    assert " FOR " not in text_of(build)


@pytest.mark.parametrize("build", READS)
def test_statuses_and_clock(build: Callable[[], Any]) -> None:
    """Statuses stand in the text, where partial indexes are matched; the clock is the statement's."""
    compiled = build().compile(dialect=psycopg.dialect())
    assert not set(map(str, JobStatus)) & set(map(str, compiled.params.values()))
    assert "now()" not in text_of(build)


@pytest.mark.parametrize("build", READS)
def test_every_parameter_is_cast(build: Callable[[], Any]) -> None:
    """Each driver sends a list or a NULL in its own way: the text itself says the type."""
    text = str(build().compile(dialect=postgresql.dialect()))
    assert len(re.findall(r"CAST\(%\(\w+\)s(?:::\w+(?:\[\])?)? AS \w", text)) == text.count("%(")


@pytest.mark.parametrize("build", READS)
def test_statements_are_built_once(build: Callable[[], Any]) -> None:
    """One object per form of a filter, for SQLAlchemy's cache of compiled statements."""
    assert build() is build()


def test_a_branch_per_status_stays_on_its_index() -> None:
    """Each branch names its partial index's condition, and OFFSET 0 keeps the order of the page out of it."""
    text = text_of(partial(listing.of_statuses, Shape(statuses=(READY, DEAD))))
    ready, dead = re.findall(r"FROM jobqueue_jobs AS job_\d WHERE (.*?) LIMIT ALL OFFSET 0", text)
    assert ready == "job_0.status = 'ready'"
    assert dead == "job_1.status = 'dead' AND job_1.finished_at IS NOT NULL"


def test_a_window_is_bounded_before_it_is_filtered() -> None:
    """The filter stands outside the window: inside, a rare match would be looked for in the whole table."""
    text = text_of(partial(listing.window, Shape(kinds=True)))
    inner = re.search(r"FROM \(SELECT [^()]* FROM jobqueue_jobs AS job WHERE (.*?)\) AS \"?row\"?", text)
    assert inner is not None
    assert inner[1] == ("job.id < CAST(%(before)s::BIGINT AS BIGINT) ORDER BY job.id DESC LIMIT 2000")


def test_bounds_end_with_their_transaction() -> None:
    """What a command sets is gone with its transaction: the session may belong to a pooler."""
    text = text_of(session.bounded)
    assert text.count(", true)") == 2
