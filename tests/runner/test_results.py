"""`keep_result`: what a handler returns, and what is stored of it, through a whole runner."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from sa_jobqueue import admin
from sa_jobqueue.events import JobSettled
from sa_jobqueue.models import jobs as table
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from tests.support.runners import add, drain, row

RESULTS: list[Any] = [{"pages": [1, 2.5, None, "ü"]}, "text", 0, False, [], None]
UNKEPT: list[tuple[Any, str]] = [
    (
        {"a": [{"at": datetime(2030, 1, 1, tzinfo=UTC)}]},
        r"TypeError: the result of 'work' can't be kept \(keep_result=True\): \$\.a\[0\]\.at: datetime\.datetime is no",
    ),
    ({"a": "\0"}, r"ValueError: the result of 'work' .*: \$\.a: the text has a NUL character"),
    (float("nan"), r"ValueError: the result of 'work' .*: \$: nan is no JSON number"),
]


def _finished(engine: Engine, url: str, registry: Registry, answers: list[Any]) -> list[Any]:
    """One job for each answer, and their rows after a burst."""
    with engine.begin() as connection:
        ids = [add(connection, "work", f'{{"place": {place}}}') for place in range(len(answers))]
    recorder = drain(registry, url)
    assert len(recorder.of(JobSettled)) == len(answers)
    return [row(engine, job_id) for job_id in ids]


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "asyncio"])
def test_what_a_handler_returns_is_the_jobs_result(engine: Engine, database_url: str, is_async: bool) -> None:
    """Any JSON value reads back equal, from a thread and from an event loop."""
    jobs = Registry()

    def work(place: int) -> Any:
        return RESULTS[place]

    async def work_async(place: int) -> Any:
        return RESULTS[place]

    jobs.handler("work", keep_result=True)(work_async if is_async else work)
    rows = _finished(engine, database_url, jobs, RESULTS)
    assert [(done.status, done.result) for done in rows] == [("done", result) for result in RESULTS]
    with engine.connect() as connection:
        details = admin.get_job(connection, rows[0].id)
    assert details is not None
    assert details.result == RESULTS[0]


def test_without_it_the_value_is_thrown_away(engine: Engine, database_url: str) -> None:
    """Whatever it is: a handler may return what no JSON holds."""
    jobs, values = Registry(), [{"a": 1}, object(), {1, 2}]

    @jobs.handler("work")
    def work(place: int) -> Any:
        return values[place]

    rows = _finished(engine, database_url, jobs, values)
    assert [(done.status, done.result) for done in rows] == [("done", None)] * 3


def test_what_can_not_be_kept_fails_the_attempt(engine: Engine, database_url: str) -> None:
    """The error names handler, path and cure; the retry policy says what becomes of the job; nothing is stored."""
    jobs = Registry()

    @jobs.handler("work", keep_result=True, retry=fixed(timedelta(hours=1)))
    def work(place: int) -> Any:
        return UNKEPT[place][0]

    rows = _finished(engine, database_url, jobs, UNKEPT)
    assert [(failed.status, failed.attempts, failed.result) for failed in rows] == [("ready", 1, None)] * 3
    for failed, (_, says) in zip(rows, UNKEPT, strict=True):
        assert re.search(says, failed.last_error), failed.last_error


def test_a_result_too_large_leaves_a_note(engine: Engine, database_url: str) -> None:
    """The work is done: running it again would bring the same, so the job is done without its result."""
    jobs, answers = Registry(), ["x" * (64 * 1024 - 2), "x" * (64 * 1024 - 1), "ü" * 40_000]

    @jobs.handler("work", keep_result=True)
    def work(place: int) -> Any:
        return answers[place]

    rows = _finished(engine, database_url, jobs, answers)
    sizes = [64 * 1024 + 1, 80_002]
    notes = [{"dropped": "result too large", "bytes": size} for size in sizes]
    assert [(done.status, done.result) for done in rows] == [
        ("done", result) for result in (answers[0], *notes)
    ]


def test_outcomes_keep_their_meaning(engine: Engine, database_url: str) -> None:
    """Returned or raised, an outcome is never a result."""
    jobs, hour = Registry(), timedelta(hours=1)
    answers: list[Any] = [Retry(hour, "busy"), Snooze(hour), Discard("why"), Settle(Discard("deep inside"))]

    @jobs.handler("work", keep_result=True)
    def work(place: int) -> Any:
        if isinstance(answers[place], Exception):
            raise answers[place]
        return answers[place]

    rows = _finished(engine, database_url, jobs, answers)
    assert [one.status for one in rows] == ["ready", "ready", "dead", "dead"]
    assert [one.result for one in rows] == [None] * 4


def test_results_of_one_batch_stay_with_their_jobs(engine: Engine, database_url: str) -> None:
    """Many outcomes are written in one statement: each row has its own result, and the bad one spoils no other."""
    jobs, count = Registry(), 200

    @jobs.handler("work", keep_result=True, retry=fixed(timedelta(hours=1)))
    def work(place: int) -> Any:
        return {"place": place} if place % 50 else float("inf")

    with engine.begin() as connection:
        connection.execute(
            insert(table), [{"kind": "work", "payload": {"place": place}} for place in range(count)]
        )
    drain(jobs, database_url)
    with engine.connect() as connection:
        rows = connection.execute(table.select()).all()
    assert len(rows) == count
    for one in rows:
        place = one.payload["place"]
        assert (one.status, one.result) == (("done", {"place": place}) if place % 50 else ("ready", None))
