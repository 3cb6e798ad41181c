"""The text of the statements that delete: what must stand in it, and what must never."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql

from sa_jobqueue.queries import prunable
from sa_jobqueue.statements.prune import prune, prune_listed
from sa_jobqueue.states import TERMINAL, JobStatus
from tests.unit.test_statements_text import text_of

BUILDERS: list[Callable[[JobStatus], Any]] = [prune, prune_listed, prunable.page, prunable.count]
EACH = [(build, status) for build in BUILDERS for status in TERMINAL]


def test_prune() -> None:
    """The prune, word for word: one status as a literal, the oldest first, rows taken whole and none waited for."""
    assert text_of(prune(JobStatus.DONE)) == (
        "WITH taken AS MATERIALIZED (SELECT job.id AS id FROM jobqueue_jobs AS job WHERE job.status = 'done' "
        "AND job.finished_at < statement_timestamp() - CAST(%(age)s::INTERVAL AS INTERVAL) "
        "AND job.finished_at >= coalesce(CAST(%(since)s::TIMESTAMP WITH TIME ZONE AS TIMESTAMP WITH TIME ZONE), "
        "CAST('-infinity' AS TIMESTAMP WITH TIME ZONE)) ORDER BY job.finished_at "
        "LIMIT CAST(%(amount)s::INTEGER AS INTEGER) FOR UPDATE SKIP LOCKED), "
        "gone AS (DELETE FROM jobqueue_jobs WHERE jobqueue_jobs.id = ANY (ARRAY((SELECT taken.id FROM taken))) "
        "AND (SELECT set_config('lock_timeout', "
        "coalesce(CAST(%(patience)s::VARCHAR AS TEXT), current_setting('lock_timeout')), true) AS set_config_1) "
        "IS NOT NULL RETURNING jobqueue_jobs.id, "
        "greatest(least(jobqueue_jobs.finished_at, CAST('9999-12-30T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)), "
        "CAST('0001-01-02T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)) AS finished_at) "
        "SELECT taken.id, gone.finished_at FROM taken LEFT OUTER JOIN gone ON gone.id = taken.id"
    )


@pytest.mark.parametrize("build", [prune, prune_listed])
def test_rows_are_taken_whole_and_none_is_waited_for(build: Callable[[JobStatus], Any]) -> None:
    """With a lesser lock the DELETE would wait for an application that writes a foreign key on the row."""
    assert "FOR UPDATE SKIP LOCKED" in text_of(build(JobStatus.DEAD))


def test_by_id_the_status_is_proved_where_no_index_sees_it() -> None:
    """The ids are few: a test that an index knows might lead the planner past them to all jobs of that status."""
    text = text_of(prune_listed(JobStatus.DEAD))
    assert "CASE WHEN (job.finished_at < statement_timestamp() - " in text
    assert "THEN job.status END = 'dead'" in text
    assert "job.status =" not in text


@pytest.mark.parametrize(("build", "status"), EACH)
def test_statuses_clock_casts_and_cache(build: Callable[[JobStatus], Any], status: JobStatus) -> None:
    """The one status is a literal, the clock the statement's, every parameter cast, each statement built once."""
    statement = build(status)
    compiled = statement.compile(dialect=postgresql.dialect())
    text = str(compiled)
    assert set(re.findall(r"'(ready|running|done|dead|cancelled)'", text)) == {status}
    assert str(status) not in compiled.params.values()
    assert "now()" not in text
    assert len(re.findall(r"CAST\(%\(\w+\)s(?:::[\w ]+(?:\[\])?)? AS \w", text)) == text.count("%(")
    assert build(status) is statement
