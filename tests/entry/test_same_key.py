"""Several jobs with one key in one call: the same as if they came one after another, at the cost of one row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import DuplicateKeyError, Job, Period, enqueue, enqueue_many
from sa_jobqueue.records import OnConflict
from tests.entry.counting import rows, statements
from tests.support.jobs import add_job, add_running, keyed
from tests.support.waiting import PATIENCE

LATER = datetime(2031, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SHOWN = ("kind", "payload", "run_at", "priority", "expires_at", "key_scope", "attempts", "returned", "status")
SERIES: list[tuple[OnConflict, ...]] = [
    ("existing", "replace"),
    ("existing", "reschedule", "existing"),
    ("replace", "existing", "reschedule"),
    ("reschedule", "replace", "existing", "reschedule"),
    ("reschedule", "reschedule", "replace"),
    ("raise", "replace", "reschedule"),
]


def hold(engine: Engine, key: str, status: str) -> None:
    columns = {**keyed(key, scope="row"), "kind": "held", "run_at": LATER, "attempts": 2}
    if status == "running":
        add_running(engine, uuid4(), **columns)
    elif status == "dead":
        add_job(engine, status="dead", finished_at=LATER, **columns)
    elif status == "ready":
        add_job(engine, **columns)


@pytest.mark.parametrize("series", SERIES, ids="-".join)
@pytest.mark.parametrize("status", ["free", "ready", "running", "dead"])
def test_one_flush_is_as_good_as_several(
    status: str, series: tuple[OnConflict, ...], application: Engine, session: Session
) -> None:
    """In what is told, in what is stored, and in what the object of the session shows."""
    if series[0] == "raise" and status != "free":
        series = series[1:]

    def asked(key: str) -> list[Job]:
        hold(application, key, status)
        return [
            enqueue(
                f"k{n}",
                {"n": n},
                run_at=LATER + n * DAY,
                priority=n,
                expires_at=LATER + (50 + n) * DAY,
                idempotency_key=key,
                key_scope="unfinished" if n % 2 else "row",
                on_conflict=on_conflict,
            )
            for n, on_conflict in enumerate(series)
        ]

    session.add_all(together := asked("together"))
    session.flush()
    for job in (apart := asked("apart")):
        session.add(job)
        session.flush()
    told = [
        [(job.enqueued.outcome, job.enqueued.status) for job in jobs if job.enqueued]
        for jobs in (together, apart)
    ]
    assert told[0] == told[1]
    assert len(told[0]) == len(series)
    shown = [
        [tuple(getattr(job, name) for name in SHOWN) for job in jobs if job in session]
        for jobs in (together, apart)
    ]
    assert shown[0] == shown[1]
    session.commit()
    stored = rows(application, *SHOWN)
    assert stored == [shown[0][0]] * 2


def test_a_thousand_changes_of_one_row_are_one(application: Engine) -> None:
    """Sent one by one each would leave a version behind that all later ones walk past."""
    new = [enqueue("k", {"n": n}, idempotency_key="x", on_conflict="replace") for n in range(1000)]
    with application.connect() as connection:
        with statements(application) as sent:
            told = enqueue_many(connection, new)
        connection.commit()
    assert [enqueued.outcome for enqueued in told] == ["created"] + ["replaced"] * 999
    assert rows(application, "payload") == [{"n": 999}]
    assert len(sent) <= 2


@pytest.mark.parametrize("form", ["add", "bulk"])
def test_only_those_are_refused_that_come_second(form: str, application: Engine, session: Session) -> None:
    """The first can still have the key; the error names no job, for there is none."""
    first, other, second = new = [
        enqueue(kind, idempotency_key=key, on_conflict="raise")
        for kind, key in (("first", "x"), ("other", "y"), ("second", "x"))
    ]
    if form == "add":
        session.add_all(new)
    with pytest.raises(DuplicateKeyError, match="'x' is that of another job of the same call") as caught:
        session.flush() if form == "add" else enqueue_many(session, new)
    assert (caught.value.job_id, caught.value.status, caught.value.indexes) == (None, None, (2,))
    if form == "add":
        assert [job in session for job in (first, other, second)] == [True, True, False]
    session.commit()
    assert rows(application, "kind") == (["first", "other"] if form == "add" else [])


@pytest.mark.parametrize("at", [LATER, None], ids=["logical time", "database's clock"])
def test_a_refusal_for_one_period_leaves_another_alone(
    at: datetime | None, application: Engine, session: Session
) -> None:
    """They have the same idempotency key, and different ones in the index."""

    def report(length: timedelta) -> Job:
        return enqueue("report", idempotency_key="r", key_scope=Period(length, at=at), on_conflict="raise")

    session.add(report(DAY))
    session.flush()
    refused, asked = report(DAY), report(2 * DAY)
    session.add_all([refused, asked])
    with pytest.raises(DuplicateKeyError):
        session.flush()
    assert (refused in session, asked in session) == (False, True)
    session.commit()
    assert asked.enqueued
    assert asked.enqueued.created
    assert len(rows(application, "id")) == 2


def test_calls_that_ask_for_different_things_do_not_deadlock(
    application: Engine, pool: ThreadPoolExecutor
) -> None:
    """Whatever is asked for each key, the rows are locked in one order, which is that of no statement for each wish."""
    keys = "abcdefgh"
    for key in keys:
        hold(application, key, "ready")
    wishes: tuple[OnConflict, ...] = ("replace", "reschedule")

    def work(which: int) -> None:
        for turn in range(40):
            with Session(application) as session, session.begin():
                told: Any = [
                    enqueue(
                        "k", run_at=LATER, idempotency_key=key, on_conflict=wishes[(n + which + turn) % 2]
                    )
                    for n, key in enumerate(keys)
                ]
                session.add_all([enqueue("k", idempotency_key=keys[(which + turn) % 8]), *told])

    for done in [pool.submit(work, which) for which in range(4)]:
        done.result(PATIENCE)
