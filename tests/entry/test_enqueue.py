"""enqueue(): arguments are checked at the call, and what the Job shows before any flush."""

from __future__ import annotations

import pickle
from dataclasses import asdict, astuple
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from fastapi.encoders import jsonable_encoder
from sqlalchemy.orm import Session

from sa_jobqueue import Enqueued, Job, JobContext, JobStatus, Registry, enqueue
from sa_jobqueue.records import HandlerCall

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
CALL = HandlerCall(
    kind="document.embed",
    payload={"document_id": 7},
    queue="ai",
    max_attempts=8,
    priority=2,
    payload_version=3,
)


class Queue(StrEnum):
    AI = "ai"


class Rank(IntEnum):
    FIRST = 0


def test_a_job_by_name_has_the_defaults_of_the_table() -> None:
    """It can be read before it is inserted; what only the server knows is None."""
    job = enqueue("k")
    assert (job.kind, job.payload, job.queue, job.priority, job.max_attempts) == ("k", {}, "default", 5, 5)
    assert (job.id, job.status, job.run_at, job.enqueued) == (None, None, None, None)


@pytest.mark.parametrize("payload", [None, {}, [], 0, "text"])
def test_an_empty_payload_is_what_was_given(payload: Any) -> None:
    """Only a payload that is left out becomes an empty object."""
    assert enqueue("k", payload).payload == payload


def test_what_is_told_is_a_record_and_no_sequence() -> None:
    """An application puts it into JSON as an object and into a text as one value; it is equal to its like alone."""
    told = Enqueued(7, "existing", JobStatus.DEAD)
    assert asdict(told) == {"id": 7, "outcome": "existing", "status": "dead"}
    assert jsonable_encoder({"job": told}) == {"job": asdict(told)}
    assert "%s" % told == "Enqueued(id=7, outcome='existing', status='dead')"  # noqa: UP031 - as applications do
    assert (
        told == Enqueued(7, "existing", JobStatus.DEAD) == pickle.loads(pickle.dumps(told)) != astuple(told)
    )
    assert len({told, Enqueued(7, "existing", JobStatus.DEAD)}) == 1


def test_a_call_brings_its_settings_along() -> None:
    """Kind, payload, queue, attempts, priority and version are those of the handler."""
    job = enqueue(CALL)
    assert (job.kind, job.payload, job.queue) == ("document.embed", {"document_id": 7}, "ai")
    assert (job.max_attempts, job.priority, job.payload_version) == (8, 2, 3)


def test_what_is_given_wins_over_what_a_call_brings() -> None:
    """The caller knows this one job better than the handler."""
    job = enqueue(CALL, queue="slow", max_attempts=1, priority=0)
    assert (job.queue, job.max_attempts, job.priority) == ("slow", 1, 0)


def test_subclasses_of_text_and_int_become_plain_values() -> None:
    """psycopg would send the name of an Enum member instead of its value."""
    job = enqueue(Queue.AI, queue=Queue.AI, priority=Rank.FIRST, idempotency_key=Queue.AI)
    for value, plain in ((job.kind, "ai"), (job.queue, "ai"), (job.priority, 0), (job.idempotency_key, "ai")):
        assert value == plain
        assert type(value) is type(plain)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"kind": 7}, TypeError, r"expected a kind \(str\) or handler.call\(...\) first, got int"),
        ({"kind": enqueue}, TypeError, "got function"),
        ({"kind": CALL, "payload": {}}, TypeError, "brings its payload along"),
        ({"kind": ""}, ValueError, "kind"),
        ({"kind": "a\0b"}, ValueError, "kind"),
        ({"kind": "k" * 201}, ValueError, "kind.*200"),
        ({"queue": " "}, ValueError, "queue"),
        ({"queue": "q\0"}, ValueError, "queue"),
        ({"queue": 7}, TypeError, "queue"),
        ({"idempotency_key": "\0"}, ValueError, "idempotency_key"),
        ({"idempotency_key": ""}, ValueError, "idempotency_key is blank"),
        ({"idempotency_key": 7}, TypeError, "idempotency_key"),
        ({"priority": 10}, ValueError, "priority: 10 is not between 0 and 9"),
        ({"priority": -1}, ValueError, "priority"),
        ({"priority": True}, TypeError, "priority: expected an int, got bool"),
        ({"priority": 1.0}, TypeError, "priority"),
        ({"max_attempts": 0}, ValueError, "max_attempts"),
        ({"max_attempts": 2_000_000_001}, ValueError, "max_attempts"),
        ({"max_attempts": "5"}, TypeError, "max_attempts"),
        ({"run_at": datetime(2031, 1, 1)}, ValueError, "run_at.* is naive: pass an aware datetime"),  # noqa: DTZ001
        ({"run_at": "tomorrow"}, TypeError, "run_at: expected an aware datetime, got str"),
        ({"run_at": NOON.date()}, TypeError, "run_at"),
        ({"run_at": datetime.max.replace(tzinfo=UTC)}, ValueError, "run_at.*between the years"),
        ({"expires_at": datetime(2031, 1, 1)}, ValueError, "expires_at.* naive"),  # noqa: DTZ001
        ({"delay": 5}, TypeError, "delay"),
        ({"delay": timedelta(seconds=-1)}, ValueError, "delay"),
        ({"delay": timedelta.max}, ValueError, "delay"),
        ({"delay": timedelta(1), "run_at": NOON}, ValueError, "run_at and delay exclude each other"),
        ({"run_at": NOON, "expires_at": NOON}, ValueError, "expires_at .* is not after run_at"),
    ],
)
def test_an_argument_that_can_not_work_is_named(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    """Before any SQL, so that the caller's transaction is untouched."""
    with pytest.raises(error, match=says):
        enqueue(**({"kind": "k"} | arguments))


def test_a_handler_in_the_place_of_its_call_is_explained() -> None:
    """The first mistake that everybody makes: the message has the line to write."""

    @Registry().handler("mail.send")
    def send(to: int) -> None: ...

    for wrong, what in ((send, "the handler"), (send.call, "a method of the handler")):
        with pytest.raises(TypeError, match=rf"{what} of 'mail.send': write enqueue\(send\.call\(\.\.\.\)\)"):
            enqueue(wrong)  # type: ignore[arg-type]


def test_a_session_is_told_of_enqueue() -> None:
    """SQLAlchemy itself knows only that the class is not mapped."""

    @Registry().handler("mail.send")
    def send(to: int) -> None: ...

    with Session() as session:
        with pytest.raises(TypeError, match=r"got a call of 'mail.send': wrap it in enqueue\(\)"):
            session.add(send.call(to=7))
        with pytest.raises(
            TypeError, match=r"the handler of 'mail.send': write enqueue\(send\.call\(\.\.\.\)\)"
        ):
            session.add(send)
        assert not session.new


@pytest.mark.parametrize("sync", [True, False])
def test_a_handler_that_is_called_without_its_context_tells_how_it_is_enqueued(sync: bool) -> None:
    """But what it raises itself is its own."""

    def send(ctx: JobContext, to: int) -> None:
        raise TypeError("its own")

    async def send_later(ctx: JobContext, to: int) -> None: ...

    handler: Any = Registry().handler("mail.send")(send if sync else send_later)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'ctx'") as missing:
        handler(to=7)
    assert f"write enqueue({handler.function.__name__}.call(...)) for a job" in missing.value.__notes__[0]
    if sync:
        with pytest.raises(TypeError, match="its own") as own:
            handler(None, to=7)
        assert not hasattr(own.value, "__notes__")


def test_the_boundaries_are_allowed() -> None:
    """The smallest and the largest of everything."""
    job = enqueue(
        "k" * 200,
        queue="q" * 200,
        priority=9,
        max_attempts=2_000_000_000,
        delay=timedelta(0),
        expires_at=NOON,
        idempotency_key="x" * 512,
    )
    assert job.run_at == timedelta(0)  # type: ignore[comparison-overlap]


def test_no_message_and_no_repr_shows_the_payload() -> None:
    """Payloads carry secrets; an error about another argument must not print them."""
    payload = {"user": 7, "token": "S3CR3T-42"}
    for wrong in ({"priority": 77}, {"queue": ""}, {"run_at": 7}, {"idempotency_key": b""}):
        with pytest.raises((TypeError, ValueError)) as caught:
            enqueue("k", payload, **wrong)  # type: ignore[arg-type]
        assert "S3CR3T" not in str(caught.value)
    with pytest.raises(TypeError) as caught:
        enqueue(payload)  # type: ignore[arg-type]
    assert "S3CR3T" not in str(caught.value)
    job = enqueue("k", payload)
    assert "S3CR3T" not in repr(job) + str(job) + repr(vars(job)["_request"].new_job)


def test_a_job_can_be_pickled() -> None:
    """A pending Job is an ordinary mapped object."""
    job = pickle.loads(pickle.dumps(enqueue("k", {"a": 1}, idempotency_key="x")))
    assert isinstance(job, Job)
    assert (job.kind, job.payload) == ("k", {"a": 1})
