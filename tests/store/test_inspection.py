"""What people read of jobs: pages of every filter, one job whole, the numbers of the queues."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func, insert, text

from sa_jobqueue.models import jobs
from sa_jobqueue.queries import listing
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store import inspection
from sa_jobqueue.views import JobDetails, JobError, JobFilter, JobPage, Stats
from tests.support.jobs import add_job, add_running, keyed, read_job

HOUR = timedelta(hours=1)
READY, RUNNING, DONE, DEAD, CANCELLED = JobStatus
FINISHED = {"finished_at": func.now()}


def page(engine: Engine, *, limit: int = 50, before: int | None = None, **wanted: Any) -> JobPage:
    with engine.connect() as connection:
        return inspection.page(connection, JobFilter(**wanted), limit=limit, before=before)


def ids(engine: Engine, **wanted: Any) -> list[int]:
    return [job.id for job in page(engine, **wanted).jobs]


def details(engine: Engine, job_id: int) -> JobDetails:
    with engine.connect() as connection:
        found = inspection.details(connection, job_id)
    assert found is not None
    return found


def stats(engine: Engine, **given: Any) -> Stats:
    with engine.connect() as connection:
        return inspection.read_stats(connection, **given)


def walk_at_once(monkeypatch: pytest.MonkeyPatch, *, windows: int = 100) -> None:
    """As with statuses of a million jobs: no status is few enough to be sorted."""
    monkeypatch.setattr(inspection, "_few", lambda *_: False)
    monkeypatch.setattr(inspection, "MOST_WINDOWS", windows)


@pytest.fixture(params=["by status", "by id"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status of few jobs is read through its index, one of many by walking down the ids: the answer is the same."""
    if request.param == "by id":
        walk_at_once(monkeypatch)


@pytest.mark.usefixtures("either_way")
def test_every_filter(engine: Engine) -> None:
    """Statuses, kinds and queues choose by themselves and together; the newest come first."""
    ready = add_job(engine, kind="a", queue="x")
    future = add_job(engine, kind="b", queue="x", run_at=func.now() + HOUR)
    running = add_running(engine, uuid4(), kind="a", queue="y")
    dead = add_job(engine, kind="a", queue="x", status="dead", **FINISHED)
    done = add_job(engine, kind="b", queue="y", status="done", **FINISHED)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [done, dead, running, future, ready]),
        ({"statuses": (READY,)}, [future, ready]),
        ({"statuses": (DEAD, READY, RUNNING)}, [dead, running, future, ready]),
        ({"statuses": (CANCELLED,)}, []),
        ({"kinds": ("a",)}, [dead, running, ready]),
        ({"kinds": ("a", "b"), "queues": ("y",)}, [done, running]),
        ({"statuses": (READY, DEAD), "queues": ("x",), "kinds": ("a",)}, [dead, ready]),
        ({"due": True}, [ready]),
        ({"due": True, "queues": ("y",)}, []),
        ({"ids": (ready, done, 10**12, ready)}, [done, ready]),
        ({"ids": (ready, done), "statuses": (DONE,)}, [done]),
        ({"ids": ()}, []),
    ]
    assert [ids(engine, **wanted) for wanted, _ in cases] == [expected for _, expected in cases]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("wanted", [{}, {"statuses": (READY,)}, {"kinds": ("test",)}])
def test_pages_follow_each_other(engine: Engine, wanted: dict[str, Any]) -> None:
    """Page by page each job comes once, and jobs that arrive meanwhile shift nothing."""
    added = [add_job(engine) for _ in range(7)]
    seen, before, pages = [], None, 0
    while pages == 0 or before is not None:
        answer = page(engine, limit=3, before=before, **wanted)
        seen += [job.id for job in answer.jobs]
        before, pages = answer.before, pages + 1
        add_job(engine)
    assert seen == added[::-1]
    assert pages == 3


def test_a_walk_ends_and_says_where(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call looks at a bounded number of jobs, however far away a match lies, and the next one goes on there."""
    walk_at_once(monkeypatch, windows=1)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO jobqueue_jobs (kind) SELECT 'test' FROM generate_series(1, :n)"),
            {"n": listing.WINDOW + 5},
        )
    (oldest,) = ids(engine, limit=1, before=2)
    add_kind = {"kinds": ("rare",)}
    with engine.begin() as connection:
        connection.execute(jobs.update().where(jobs.c.id == oldest).values(kind="rare"))
    first = page(engine, **add_kind)
    assert first.jobs == ()
    assert first.before == 6
    second = page(engine, before=first.before, **add_kind)
    assert [job.id for job in second.jobs] == [oldest]
    assert second.before is None


def test_a_key_finds_its_holder_beyond_the_walk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that holds a key is in the index, wherever it lies; those that let it go are found on the way."""
    holder = add_job(engine, **keyed("k"))
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO jobqueue_jobs (kind) SELECT 'x' FROM generate_series(1, 10001)"))
    let_go = add_job(engine, status="dead", **keyed("k", held=False), **FINISHED)
    assert ids(engine, key="k") == [let_go, holder]
    monkeypatch.setattr(inspection, "MOST_WINDOWS", 1)
    assert ids(engine, key="k") == [let_go, holder]
    assert ids(engine, key="k", kinds=("none",)) == []
    assert ids(engine, key="another") == []


def test_what_a_list_shows(engine: Engine) -> None:
    """A summary has the row's values, and of the last error the beginning of its first line."""
    token = uuid4()
    job_id = add_running(
        engine, token, attempts=3, returned=1, last_error="ValueError: " + "x" * 5000 + "\n  at f"
    )
    short = add_job(engine, last_error="boom\n  at g")
    row = read_job(engine, job_id)
    newer, older = page(engine).jobs
    assert (older.id, older.status, older.leased_by, older.lease_until) == (
        job_id,
        RUNNING,
        "holder",
        row.lease_until,
    )
    assert older.counted_attempts == 2
    assert older.error == "ValueError: " + "x" * 288
    assert (newer.id, newer.error, newer.finished_at, newer.reason) == (short, "boom", None, None)


def test_times_that_python_cannot_hold(engine: Engine) -> None:
    """One row with infinity in it doesn't cost the operator the whole list."""
    job_id = add_job(engine, run_at=text("'infinity'"), expires_at=text("'-infinity'"))
    (job,) = page(engine).jobs
    assert job.run_at.year == 9999
    found = details(engine, job_id)
    assert found.expires_at is not None
    assert found.expires_at.year == 1


def test_one_job_whole(engine: Engine) -> None:
    """Everything that is written about a job, its failures one by one."""
    errors = [{"attempt": 1, "at": "2026-01-01T00:00:00.000000Z", "verb": "retry", "error": "boom\nat f"}]
    job_id = add_job(
        engine,
        status="dead",
        payload={"document": 7},
        result={"n": 1},
        errors=errors,
        last_error="boom\nat f",
        **keyed("k", held=False),
        **FINISHED,
    )
    found = details(engine, job_id)
    assert (found.payload, found.result, found.key_scope, found.holds_key) == (
        {"document": 7},
        {"n": 1},
        "unfinished",
        False,
    )
    assert found.errors == (JobError(1, "2026-01-01T00:00:00.000000Z", "retry", "boom\nat f"),)
    assert (found.last_error, found.error, found.status) == ("boom\nat f", "boom", DEAD)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("nonsense", (JobError(None, None, None, "nonsense"),)),
        ({"a": 1}, (JobError(None, None, None, '{"a": 1}'),)),
        (
            [None, {"error": "x", "attempt": "1"}],
            (JobError(None, None, None, "null"), JobError(None, None, None, "x")),
        ),
    ],
)
def test_errors_of_somebody_elses_making(engine: Engine, stored: Any, expected: tuple[JobError, ...]) -> None:
    """What other SQL put into `errors` is shown, not stumbled over."""
    assert details(engine, add_job(engine, errors=stored)).errors == expected


def test_no_such_job(engine: Engine) -> None:
    """An id without a job is None."""
    with engine.connect() as connection:
        assert inspection.details(connection, 7) is None


def test_numbers(engine: Engine) -> None:
    """Each queue's jobs by status; due ones apart from scheduled ones, and the ages of the oldest."""
    add_job(engine, queue="a", run_at=func.now() - 2 * HOUR)
    add_job(engine, queue="a", run_at=func.now() - HOUR)
    add_job(engine, queue="a", run_at=func.now() + HOUR)
    add_running(engine, uuid4(), queue="a", run_at=func.now() - 3 * HOUR)
    add_running(engine, uuid4(), queue="b", lease=-HOUR)
    for status, number in (("done", 4), ("dead", 2), ("cancelled", 1)):
        for _ in range(number):
            add_job(engine, queue="b", status=status, **FINISHED)
    numbers = stats(engine)
    first, second = numbers.queues
    assert (first.queue, first.due, first.scheduled, first.running, first.expired) == ("a", 2, 1, 1, 0)
    assert first.oldest_due is not None
    assert first.oldest_running is not None
    assert 2 * HOUR <= first.oldest_due < 3 * HOUR <= first.oldest_running
    assert (second.queue, second.due, second.running, second.expired) == ("b", 0, 1, 1)
    assert (second.done, second.dead, second.cancelled, second.oldest_due) == (4, 2, 1, None)
    total = numbers.total
    assert (total.due, total.running, total.done, total.oldest_due) == (2, 2, 4, first.oldest_due)
    assert numbers.at_least == frozenset()


def test_an_empty_queue_has_no_numbers(engine: Engine) -> None:
    """No jobs: no queues, and a total of nothing."""
    numbers = stats(engine)
    assert numbers.queues == ()
    assert (numbers.total.due, numbers.total.oldest_due) == (0, None)


def test_history_is_counted_up_to_a_bound(engine: Engine) -> None:
    """Beyond the bound a number is a lower one and says so; without a bound everything is counted."""
    rows = [{"kind": "t", "status": status} for status in ("done", "done", "done", "dead")]
    with engine.begin() as connection:
        connection.execute(insert(jobs).values(**FINISHED), rows)
    bounded, whole = stats(engine, most=2), stats(engine, most=None)
    assert (bounded.total.done, bounded.total.dead, bounded.at_least) == (2, 1, {DONE})
    assert (whole.total.done, whole.at_least) == (3, frozenset())


def test_due_jobs_are_ready_ones() -> None:
    """A filter that contradicts itself is refused."""
    with pytest.raises(ValueError, match="due jobs are ready ones, not dead"):
        JobFilter(due=True, statuses=(DEAD,))
    assert JobFilter(due=True, statuses=(READY,)).statuses == (READY,)
    assert JobFilter().everything
    assert not JobFilter(key="k").everything
