"""assert_enqueued(), refute_enqueued(), all_enqueued(): what they find, and what they say when they don't."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from sqlalchemy import Engine, func
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from sa_jobqueue import Registry, enqueue, ref
from sa_jobqueue.models import jobs as table
from sa_jobqueue.testing import all_enqueued, assert_enqueued, drain, refute_enqueued
from tests.entry.application import Document
from tests.testing.conftest import Place, told

HOUR = timedelta(hours=1)
NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
REGISTRY = Registry()


@REGISTRY.handler("document.embed", queue="ai", aliases=["embed"])
def embed(document_id: int, model: str = "m1") -> None:
    """Somebody's handler."""


def test_pending_and_uncommitted_jobs_are_found_in_the_callers_transaction(place: Place) -> None:
    """By session and by connection; a pending job is flushed first, its references filled in."""

    async def scenario(place: Place) -> None:
        await told(refute_enqueued(place.session))
        document = Document(title="news")
        place.session.add_all([document, enqueue(embed.call(document_id=ref(document)))])
        job = await told(assert_enqueued(place.session, embed))
        assert document.id is not None
        assert job.payload == {"document_id": document.id}
        assert await told(assert_enqueued(place.connection, embed.call(document_id=document.id))) == job
        assert (job.kind, job.queue, job.status, job.priority, job.attempt) == (
            *("document.embed", "ai", "ready"),
            *(5, 0),
        )
        await told(place.session.rollback())
        await told(refute_enqueued(place.session))

    place.run(scenario)


def test_every_filter_finds_and_refutes(place: Place) -> None:
    """Each alone decides."""
    job = enqueue(
        "k",
        {"a": {"b": 1, "c": [1, 2.5]}, "d": None},
        queue="q",
        priority=3,
        run_at=NOON,
        idempotency_key="x",
    )
    fits: list[dict[str, Any]] = [
        {},
        {"kind": "k"},
        {"payload": {}},
        {"payload": {"a": {"b": 1}}},
        {"payload": {"a": {"c": [1, 2.5]}, "d": None}},
        {"payload": {"a": ANY, "d": None}},
        {"payload": {"a": {"c": [1, pytest.approx(2.4, abs=0.2)]}}},
        {"queue": "q"},
        {"priority": 3},
        {"run_at": NOON},
        {"run_at": (NOON + timedelta(seconds=5), timedelta(seconds=5))},
        {"key": "x"},
        {"status": "ready"},
        {"status": None},
    ]
    differs: list[dict[str, Any]] = [
        {"kind": "other"},
        {"payload": None},
        {"payload": {"a": {"b": 2}}},
        {"payload": {"a": {"c": [1]}}},
        {"payload": {"e": None}},
        {"queue": "default"},
        {"priority": 5},
        {"run_at": NOON + HOUR},
        {"run_at": (NOON + timedelta(seconds=6), timedelta(seconds=5))},
        {"delay": HOUR},
        {"key": "y"},
        {"key": None},
        {"status": "done"},
    ]

    async def scenario(place: Place) -> None:
        place.session.add(job)
        for filters in fits:
            assert (await told(assert_enqueued(place.session, **filters))).id == job.id
            with pytest.raises(AssertionError):
                await told(refute_enqueued(place.session, **filters))
        for filters in differs:
            await told(refute_enqueued(place.session, **filters))
            with pytest.raises(AssertionError):
                await told(assert_enqueued(place.session, **filters))

    place.run(scenario)


def test_a_delay_is_exactly_the_one_of_the_enqueue(place: Place) -> None:
    """No tolerance is needed: both times are of one transaction."""

    async def scenario(place: Place) -> None:
        place.session.add(enqueue("k", delay=HOUR))
        job = await told(assert_enqueued(place.session, "k", delay=HOUR))
        assert job.delay == HOUR
        await told(refute_enqueued(place.session, "k", delay=HOUR + timedelta(seconds=1)))

    place.run(scenario)


def test_counts_and_lists_go_by_id(place: Place) -> None:
    """The first of several, or exactly so many."""

    async def scenario(place: Place) -> None:
        place.session.add_all([*(enqueue("k", {"n": n}) for n in range(3)), enqueue("embed")])
        found = await told(all_enqueued(place.session, "k"))
        assert [job.payload["n"] for job in found] == [0, 1, 2]
        assert await told(assert_enqueued(place.session, "k")) == found[0]
        assert await told(assert_enqueued(place.session, "k", count=3)) == found
        assert await told(assert_enqueued(place.session, "no", count=0)) == []
        assert (await told(assert_enqueued(place.session, embed))).kind == "embed"
        with pytest.raises(AssertionError, match="expected 2 ready jobs, found 3"):
            await told(assert_enqueued(place.session, "k", count=2))

    place.run(scenario)


@pytest.mark.parametrize("kind", ["sync", "asyncpg"])
def test_scoped_sessions_are_passed_as_they_are(kind: str, application: Engine) -> None:
    """The proxy stands for the session of this thread or task."""

    async def scenario(place: Place) -> None:
        scoped: Any = (
            scoped_session(place.make)
            if kind == "sync"
            else async_scoped_session(place.make_async, scopefunc=lambda: 1)
        )
        scoped.add(enqueue("k"))
        await told(assert_enqueued(scoped, "k"))
        assert isinstance(scoped(), Session | AsyncSession)
        await told(scoped.remove())

    Place(kind, application).run(scenario)


def message(call: Any, *arguments: Any, **filters: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        call(*arguments, **filters)
    return str(caught.value)


def test_a_failure_shows_the_nearest_jobs_and_in_what_they_differ(sync_place: Place) -> None:
    """Those of the same kind first, then those with the fewest differences."""

    async def scenario(place: Place) -> None:
        with place.make() as session, session.begin():
            ids = []
            for job in (
                enqueue("mail.send", {"document_id": 7}),
                enqueue(embed.call(document_id=8), idempotency_key="embed:8"),
                enqueue(embed.call(document_id=7, model="m2"), queue="slow"),
            ):
                session.add(job)
                session.flush()
                ids.append(job.id)
            session.connection().execute(
                table.insert().values(
                    kind="document.embed",
                    queue="ai",
                    payload={"document_id": 7, "model": "m1"},
                    status="dead",
                    reason="exhausted",
                    finished_at=func.now(),
                )
            )
        said = message(
            assert_enqueued, place.session, "document.embed", {"document_id": 7, "model": "m1"}, queue="ai"
        )
        mail, other, slow = ids
        assert said == "\n".join(
            [
                "expected such a job, found none",
                "  looked for:",
                "    kind     'document.embed'",
                "    payload  {'document_id': 7, 'model': 'm1'}",
                "    queue    'ai'",
                "    status   ready",
                "  the others, the nearest first:",
                f"    job {slow + 1} 'document.embed': it is dead (exhausted), not ready",
                f"    job {slow} 'document.embed': payload['model'] is 'm2', not 'm1', queue is 'slow', not 'ai'",
                f"    job {other} 'document.embed': payload['document_id'] is 8, not 7, payload['model'] is missing",
                f"    job {mail} 'mail.send': another kind, payload['model'] is missing, queue is 'default', not 'ai'",
            ]
        )
        assert message(refute_enqueued, place.session, embed, priority=5) == "\n".join(
            [
                "expected no such job, found 2",
                "  looked for:",
                "    kind     'document.embed' or 'embed'",
                "    priority 5",
                "    status   ready",
                "  found:",
                f"    job {other} 'document.embed' in 'ai' key='embed:8': {{'document_id': 8}}",
                f"    job {slow} 'document.embed' in 'slow': {{'model': 'm2', 'document_id': 7}}",
            ]
        )

    sync_place.run(scenario)


def test_a_failure_without_any_job_says_so(place: Place) -> None:
    """Most often the code under test works on another session, or has rolled back."""

    async def scenario(place: Place) -> None:
        with pytest.raises(AssertionError) as caught:
            await told(assert_enqueued(place.session, run_at=(NOON, HOUR), key=None, status=None))
        assert str(caught.value) == "\n".join(
            [
                "expected such a job, found none",
                "  looked for:",
                "    run_at   within 1:00:00 of 2031-01-01 12:00:00+00:00",
                "    key      None",
                "    status   any",
                "  there are no others that this transaction sees",
            ]
        )

    place.run(scenario)


def test_a_failure_stays_short(sync_place: Place) -> None:
    """A hundred jobs with large payloads are no screenful of text."""

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("k", {"n": n, "text": "x" * 5000}) for n in range(100)])
        for said in (
            message(assert_enqueued, place.session, "k", {"n": -1, "text": "y"}),
            message(refute_enqueued, place.session, "k"),
            message(assert_enqueued, place.session, "k", count=1),
        ):
            assert len(said.splitlines()) < 20
            assert len(said) < 5000
        assert "and 95 more" in message(refute_enqueued, place.session, "k")

    sync_place.run(scenario)


@pytest.mark.parametrize(
    ("arguments", "filters", "error", "says"),
    [
        ((7,), {}, TypeError, r"expected a kind \(str\), a handler or handler.call\(\.\.\.\), got int"),
        ((embed.call(document_id=7), {}), {}, TypeError, "the call brings its payload along"),
        ((), {"que": "ai"}, TypeError, "no such filter: que; there are queue, priority, .* go into a dict"),
        ((), {"run_at": datetime(2031, 1, 1)}, ValueError, "run_at .* is naive"),  # noqa: DTZ001
        ((), {"status": "finished"}, ValueError, "'finished' is not a valid JobStatus"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: Any, filters: Any, error: type[Exception], says: str, engine: Engine
) -> None:
    """A filter that was misspelt must not pass for one that found nothing."""
    with Session(engine) as session:
        for call in (assert_enqueued, refute_enqueued, all_enqueued):
            with pytest.raises(error, match=says):
                call(session, *arguments, **filters)
        with pytest.raises(TypeError, match=r"refute_enqueued\(\): expected a Session, .* got Engine"):
            refute_enqueued(engine)  # type: ignore[call-overload]


def test_a_field_that_the_handler_does_not_take_is_refused(engine: Engine) -> None:
    """For nothing could refute it; by name anything may be asked for."""
    with Session(engine) as session:
        for ask in (assert_enqueued, refute_enqueued, all_enqueued):
            says = rf"{ask.__name__}\(\): .*embed takes no field 'document', did you mean 'document_id'"
            with pytest.raises(ValueError, match=says):
                ask(session, embed, {"document": 7})
        refute_enqueued(session, "document.embed", {"document": 7})


def test_a_forgotten_await_is_told_by_the_callers_name() -> None:
    """Python warns with the name of the coroutine."""
    session = AsyncSession()
    calls: list[Any] = [call(session, embed) for call in (assert_enqueued, refute_enqueued, all_enqueued)]
    calls.append(drain(session, REGISTRY))
    names = [call.__qualname__ for call in calls]
    for call in calls:
        call.close()
    assert names == ["assert_enqueued", "refute_enqueued", "all_enqueued", "drain"]
