"""Reports of progress: what is written of a running job, and what an odd one costs its neighbours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, func, select, text

from sa_jobqueue import admin
from sa_jobqueue.admin import JobProgress
from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing, Progress, Renewed
from sa_jobqueue.store.store import Store
from tests.support.jobs import add_running, change, read_job, refuse, server_time
from tests.support.waiting import wait_until

PAGE = Progress(0.4, "page 12")


def test_a_report_writes_progress_and_nothing_else(engine: Engine, store: Store, token: UUID) -> None:
    """The share, the text, the attempt and the database's time; the lease is the renewal's."""
    job_id = add_running(engine, token, attempts=3, returned=1)
    before = read_job(engine, job_id)
    assert store.report([((job_id, token), PAGE)]) == [Renewed(job_id, token, Landing.LANDED)]
    after = read_job(engine, job_id)
    changed = {name for name in before._fields if getattr(before, name) != getattr(after, name)}
    assert changed == {"progress", "updated_at"}
    at = after.progress.pop("at")
    assert after.progress == {"fraction": 0.4, "text": "page 12", "attempt": 2}
    assert datetime.fromisoformat(at) == after.updated_at
    with engine.connect() as connection:
        details = admin.get_job(connection, job_id)
    assert details is not None
    assert details.progress == JobProgress(0.4, "page 12", 2, after.updated_at)


def test_reports_leave_the_indexes_alone(engine: Engine, store: Store, token: UUID) -> None:
    """Progress every second for hours: new versions of the row, and no new entry in any index."""
    job_id = add_running(engine, token)
    counts = text("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobqueue_jobs'")

    def counted() -> tuple[int, int]:
        with engine.connect() as connection:
            updated, heap_only = connection.execute(counts).one()
        return int(updated), int(heap_only)

    updated, heap_only = counted()
    for number in range(20):
        store.report([((job_id, token), Progress(number / 20))])
    store.close()
    engine.dispose()  # a session that ends tells its numbers
    wait_until(lambda: counted()[0] == updated + 20)
    assert counted()[1] - heap_only == 20


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("x" * 10_000, "x" * 4093 + "…"),
        ("a\0b", "a\ufffdb"),
        ("half \ud83d", "half \\ud83d"),
        ("", ""),
        (None, None),
    ],
    ids=["long", "NUL", "surrogate", "empty", "none"],
)
def test_any_text_is_stored(
    engine: Engine, store: Store, token: UUID, said: str | None, kept: str | None
) -> None:
    """Within 4 KiB, and in a form that PostgreSQL can hold."""
    odd, usual = add_running(engine, token), add_running(engine, token)
    answers = store.report([((odd, token), Progress(0.5, said)), ((usual, token), PAGE)])
    assert [answer.landing for answer in answers] == [Landing.LANDED] * 2
    assert read_job(engine, odd).progress["text"] == kept
    assert read_job(engine, usual).progress["text"] == "page 12"


def test_each_miss_has_its_own_name(engine: Engine, store: Store, token: UUID) -> None:
    """Nothing is written where the token is another's, and a locked row is not waited for."""
    locked, taken, mine = (add_running(engine, token) for _ in range(3))
    change(engine, taken, lease_token=uuid4())
    ids = [10**9, taken, locked, mine]
    with engine.begin() as application:
        application.execute(select(jobs.c.id).where(jobs.c.id == locked).with_for_update())
        answers = store.report([((job_id, token), PAGE) for job_id in ids])
    assert [answer.id for answer in answers] == ids
    assert [str(answer.landing) for answer in answers] == ["gone", "lost", "busy", "landed"]
    assert [read_job(engine, job_id).progress is None for job_id in ids[1:]] == [True, True, False]


def test_a_request_for_cancellation_comes_with_the_answer(engine: Engine, store: Store, token: UUID) -> None:
    """A handler that reports hears of it within a second, long before the next renewal."""
    asked = add_running(engine, token, cancel_requested_at=func.now())
    assert [answer.cancel_requested for answer in store.report([((asked, token), PAGE)])] == [True]


def test_a_report_keeps_an_expired_lease_expired(engine: Engine, store: Store, token: UUID) -> None:
    """It says how far the job is, not that its runner holds it."""
    job_id = add_running(engine, token, lease=-timedelta(hours=1))
    assert store.report([((job_id, token), PAGE)])[0].landing is Landing.LANDED
    assert read_job(engine, job_id).lease_until < server_time(engine)


def test_a_refused_text_gives_way_to_a_note(engine: Engine, store: Store, token: UUID) -> None:
    """What the database can't hold of one report costs its text alone, and the others nothing."""
    ids = [add_running(engine, token) for _ in range(5)]
    refuse(
        engine,
        ids[2],
        "RAISE 'no' USING ERRCODE = '22P05'",
        when="starts_with(new.progress ->> 'text', 'page')",
    )
    answers = store.report([((job_id, token), PAGE) for job_id in ids])
    assert [answer.landing for answer in answers] == [Landing.LANDED] * 5
    texts = [read_job(engine, job_id).progress["text"] for job_id in ids]
    note = texts.pop(2)
    assert texts == ["page 12"] * 4
    assert note.startswith("the text could not be stored (")
    assert "22P05" in note
    assert read_job(engine, ids[2]).progress["fraction"] == 0.4


def test_a_row_that_nobody_may_write_is_left_out(engine: Engine, store: Store, token: UUID) -> None:
    """Its progress is dropped: trying it each second would bring the same."""
    ids = [add_running(engine, token) for _ in range(5)]
    refuse(engine, ids[2], "RAISE 'no'")
    answers = store.report([((job_id, token), PAGE) for job_id in ids])
    assert [answer.id for answer in answers] == [job_id for job_id in ids if job_id != ids[2]]
    assert read_job(engine, ids[2]).progress is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"fraction": 0.5, "text": None, "attempt": 1, "at": "2030-01-01T00:00:00Z"}, None),
        ({"done": 3, "of": 7}, '{"of": 7, "done": 3}'),
        ("half", '"half"'),
        ({"fraction": "x", "text": None, "attempt": 1, "at": "2030-01-01T00:00:00Z"}, "fraction"),
        ({"fraction": 40, "text": None, "attempt": 1, "at": "2030-01-01T00:00:00Z"}, '"fraction": 40'),
        ({"fraction": 1, "text": "t", "attempt": 1, "at": "yesterday"}, "yesterday"),
        ({"fraction": 1, "text": "t", "attempt": 1, "at": "2030-01-01"}, "2030-01-01"),
    ],
)
def test_what_other_sql_wrote_is_shown_as_it_is(
    engine: Engine, token: UUID, written: object, read: str | None
) -> None:
    """Nothing that stands in the column breaks the read of a job."""
    job_id = add_running(engine, token, progress=written)
    with engine.connect() as connection:
        details = admin.get_job(connection, job_id)
        (listed,) = admin.list_jobs(connection).jobs
    assert details is not None
    assert details.progress is not None
    assert listed.progress == details.progress
    if read is None:
        assert details.progress == JobProgress(0.5, None, 1, datetime(2030, 1, 1, tzinfo=UTC))
    else:
        assert details.progress.attempt is None
        assert read in str(details.progress.text)
