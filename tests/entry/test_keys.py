"""Keys: made of fields of the payload, taken for a period, and refused where they can't work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import EnqueueError, Period, Registry, enqueue, enqueue_many, ref
from sa_jobqueue.entry.request import request_of
from sa_jobqueue.periods import bucket_of
from tests.entry.application import Document
from tests.entry.counting import rows

HOUR = timedelta(hours=1)
NOON = datetime(2026, 2, 3, 12, 34, 56, tzinfo=UTC)
jobs = Registry()


@jobs.handler("document.embed")
def embed(document_id: int, model: str = "m1") -> None:
    """Somebody's handler."""


def key_of(payload: Any, *names: str, kind: str = "document.embed") -> str:
    key = request_of(enqueue(kind, payload, unique_by=names)).new_job.idempotency_key
    assert key
    return key


def test_a_key_is_stored_and_so_never_changes() -> None:
    """Jobs that wait were given theirs by an earlier release: these two stand for all of them."""
    assert key_of({"document_id": 7, "model": "m1", "page": 3}, "document_id", "model") == (
        "document.embed:93797ac71659a9da059216b2662dd7f4925fea859922215d29dbc2dd24451e0d"
    )
    assert key_of({"é": [1.5, None, True, {"b": 1, "a": "\U0001f600"}]}, "é") == (
        "document.embed:d9136280de358310d2bec2da40a323bc17f9a3560275aa3376d3711b28a95e72"
    )


def test_a_key_depends_on_kind_names_and_values_alone() -> None:
    """Not on the order of anything, nor on the fields that are not named."""
    one = key_of({"a": 1, "b": {"x": 1, "y": 2}}, "a", "b")
    assert one == key_of({"b": {"y": 2, "x": 1}, "c": "other", "a": 1}, "b", "a")
    others = [
        key_of({"a": 1, "b": {"x": 1, "y": 2}}, "a", "b", kind="other"),
        key_of({"a": 1, "b": {"x": 1, "y": 2}}, "a"),
        key_of({"a": "1", "b": {"x": 1, "y": 2}}, "a", "b"),
        key_of({"a": None, "b": {"x": 1, "y": 2}}, "a", "b"),
        key_of({"a": [1], "b": {"x": 1, "y": 2}}, "a", "b"),
    ]
    assert len({one, *others}) == 6
    assert len(key_of({"a": "long" * 10_000}, "a")) == len(one)


def test_a_field_counts_as_it_stands_in_the_payload() -> None:
    """Also where Python calls two values equal, and the field is typed: by name nobody knows its type."""

    def work(at: datetime, price: Decimal, share: float) -> None: ...

    typed = Registry().handler("k", unique_by=["at", "price", "share"])(work)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    there = noon.astimezone(timezone(timedelta(hours=1)))
    same: list[tuple[datetime, Decimal, float]] = [
        (noon, Decimal("1.0"), 1.0),
        (there, Decimal("1.0"), 1.0),
        (noon, Decimal("1.00"), 1.0),
        (noon, Decimal("1.0"), 1),
    ]
    assert len(set(same)) == 1
    keys = [enqueue(typed.call(*values)).idempotency_key for values in same]
    assert len(set(keys)) == 3
    assert keys[0] == keys[3]  # a float field writes 1 as 1.0


def test_a_key_of_a_row_of_the_same_flush(application: Engine, session: Session) -> None:
    """It is made when the row has its own, and is the same as that of a job that names the number."""
    session.add(document := Document(title="d"))
    session.add(job := enqueue(embed.call(document_id=ref(document)), unique_by=["document_id"]))
    session.flush()
    again = enqueue(embed.call(document_id=document.id, model="m2"), unique_by=["document_id"])
    (told,) = enqueue_many(session, [again])
    assert job.enqueued
    assert (told.id, told.outcome) == (job.enqueued.id, "existing")
    assert job.idempotency_key == key_of({"document_id": document.id}, "document_id")
    session.commit()
    assert rows(application, "unique_key") == [job.idempotency_key]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"unique_by": ["modle"]}, ValueError, "has no 'modle', did you mean 'model'"),
        ({"unique_by": "model"}, TypeError, r"unique_by='model': expected several names: write \['model'\]"),
        ({"unique_by": []}, ValueError, "unique_by is empty"),
        ({"unique_by": [1]}, TypeError, "unique_by: expected names of fields, got 1"),
        ({"unique_by": ["model"], "idempotency_key": "x"}, ValueError, "exclude each other"),
        (
            {"key_scope": "unfinished"},
            ValueError,
            "key_scope='unfinished' is about a key, and the job has none",
        ),
        ({"on_conflict": "raise"}, ValueError, "on_conflict='raise' is about a key, and the job has none"),
        ({"idempotency_key": "x", "key_scope": "ever"}, ValueError, "key_scope='ever': expected \"row\""),
        ({"idempotency_key": "x", "key_scope": HOUR}, ValueError, "key_scope=timedelta"),
        (
            {"idempotency_key": "x", "on_conflict": "ignore"},
            ValueError,
            "on_conflict='ignore': expected one of 'exi",
        ),
    ],
)
def test_what_can_not_work_is_refused_at_the_call(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Naming the argument."""
    with pytest.raises(error, match=message):
        enqueue("k", {"model": "m1", "n": 1}, **arguments)


def test_a_payload_without_fields_makes_no_key() -> None:
    """A list has no names."""
    with pytest.raises(TypeError, match="the payload of 'k' has no fields"):
        enqueue("k", [1, 2], unique_by=["n"])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Period(3600), TypeError, "Period.length.=3600: expected a datetime.timedelta"),  # type: ignore[arg-type]
        (lambda: Period(timedelta(0)), ValueError, "must be from 1s to"),
        (lambda: Period(timedelta(seconds=1.5)), ValueError, "expected whole seconds"),
        (lambda: Period(HOUR, at=datetime(2026, 1, 1)), ValueError, "naive"),  # noqa: DTZ001
        (
            lambda: Period(timedelta(days=7), at=datetime.min.replace(tzinfo=UTC)),
            ValueError,
            "begins outside of the years 1 to 9999",
        ),
        (
            lambda: Period(HOUR, at=datetime.max.replace(tzinfo=timezone(-HOUR))),
            ValueError,
            "begins outside of the years 1 to 9999",
        ),
        (lambda: Period(HOUR, at="today"), TypeError, "expected an aware datetime, got str"),  # type: ignore[arg-type]
    ],
)
def test_a_period_that_can_not_be(make: Callable[[], Period], error: type[Exception], message: str) -> None:
    """Refused where it is written."""
    with pytest.raises(error, match=message):
        make()


def test_a_period_is_stored_and_so_never_changes() -> None:
    """Whatever platform, time zone or century."""
    berlin = ZoneInfo("Europe/Berlin")
    starts = [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z/3600s"),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "1969-12-31T23:00:00Z/3600s"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=berlin), "2026-10-25T00:00:00Z/3600s"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1), "2026-10-25T01:00:00Z/3600s"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31T23:00:00Z/3600s"),
    ]
    for moment, start in starts:
        assert bucket_of(moment, HOUR) == start


@pytest.mark.parametrize("form", ["add", "bulk"])
def test_once_in_each_period(form: str, application: Engine, session: Session) -> None:
    """By a logical time, however late it is worked on; the key that was given is kept beside it."""

    def send(at: datetime, length: timedelta = HOUR) -> str:
        job = enqueue("report", idempotency_key="r", key_scope=Period(length, at=at))
        if form == "bulk":
            return enqueue_many(session, [job])[0].outcome
        session.add(job)
        session.flush()
        assert job.enqueued
        return job.enqueued.outcome

    assert send(NOON) == "created"
    assert send(NOON.replace(minute=59, second=59, microsecond=999_999)) == "existing"
    assert send(NOON.replace(minute=0, second=0)) == "existing"
    assert send(NOON + HOUR) == "created"
    assert send(NOON, timedelta(days=1)) == "created"
    session.commit()
    assert rows(application, "idempotency_key", "key_scope", "unique_key") == [
        ("r", "row", "r@2026-02-03T12:00:00Z/3600s"),
        ("r", "row", "r@2026-02-03T13:00:00Z/3600s"),
        ("r", "row", "r@2026-02-03T00:00:00Z/86400s"),
    ]


def test_the_period_of_the_databases_clock(application: Engine, session: Session) -> None:
    """That of the start of the transaction, in which the same period comes out each time."""
    now = session.connection().exec_driver_sql("SELECT now()").scalar_one()
    jobs = [enqueue("report", idempotency_key="r", key_scope=Period(HOUR)) for _ in range(2)]
    session.add_all(jobs)
    session.flush()
    assert {job.enqueued.outcome for job in jobs if job.enqueued} == {"created", "existing"}
    same = enqueue("report", idempotency_key="r", key_scope=Period(HOUR, at=now))
    assert enqueue_many(session, [same])[0].outcome == "existing"
    session.commit()


def test_a_late_error_is_refused_early(session: Session) -> None:
    """After the rows of a flush an error would cost the transaction, so that it is told before them."""
    session.add(document := Document(title="d"))
    session.add(job := enqueue("k", {"n": ref(document)}, idempotency_key="x", on_conflict="raise"))
    with pytest.raises(EnqueueError, match="flush that row first"):
        session.flush()
    session.expunge(job)
    session.flush()
    session.add(enqueue("k", {"n": ref(document)}, idempotency_key="x", on_conflict="raise"))
    session.commit()
