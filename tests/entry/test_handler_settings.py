"""What a handler says of all its jobs, keys and size of the payload: it comes with each call, and enqueue() may differ."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import (
    DuplicateKeyError,
    Enqueued,
    Job,
    JobContext,
    Period,
    Registry,
    enqueue,
    enqueue_many,
    payloads,
    ref,
)
from sa_jobqueue.entry.request import request_of
from sa_jobqueue.records import HandlerCall
from tests.entry.application import Document, Ticket
from tests.entry.conftest import Client
from tests.entry.counting import rows
from tests.support.jobs import change

HOUR = timedelta(hours=1)
NOON = datetime(2026, 2, 3, 12, 34, 56, tzinfo=UTC)
jobs = Registry()


@jobs.handler(
    "document.embed", unique_by=["document_id", "model"], key_scope="unfinished", on_conflict="replace"
)
def embed(document_id: int, model: str = "m1", page: int = 0) -> None:
    """Once at a time for each document and model, with the latest page."""


@jobs.handler("report.build", key_scope=Period(HOUR), on_conflict="raise")
def build(name: str) -> None:
    """Brings no key: each call has its own, or none."""


@jobs.handler("tiny", max_payload_bytes=20)
def tiny(text: str) -> None:
    """A payload of {"text":"........."} at most."""


def asked(job: Job) -> tuple[Any, ...]:
    """What is asked for about the key."""
    new_job = request_of(job).new_job
    scope = new_job.period or new_job.bucket or new_job.key_scope
    return new_job.idempotency_key, scope, new_job.on_conflict


def key_of(**fields: Any) -> str:
    key = request_of(enqueue("document.embed", fields, unique_by=fields)).new_job.idempotency_key
    assert key
    return key


CALL = embed.call(document_id=7, model="m2", page=1)
KEY = key_of(document_id=7, model="m2")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (KEY, "unfinished", "replace")),
        ({"key_scope": "row"}, (KEY, "row", "replace")),
        ({"key_scope": Period(HOUR)}, (KEY, HOUR, "replace")),
        ({"on_conflict": "existing"}, (KEY, "unfinished", "existing")),
        ({"unique_by": ["page"]}, (key_of(page=1), "unfinished", "replace")),
        ({"idempotency_key": "mine"}, ("mine", "unfinished", "replace")),
        (
            {"idempotency_key": "mine", "key_scope": "row", "on_conflict": "raise"},
            ("mine", "row", "raise"),
        ),
    ],
)
def test_arguments_win_one_by_one(arguments: dict[str, Any], expected: Any) -> None:
    """What is not given is as the handler has it."""
    assert asked(enqueue(CALL, **arguments)) == expected


def test_settings_without_a_key_count_for_calls_that_bring_one() -> None:
    """The others have no key, and that is no mistake of theirs."""
    assert asked(enqueue(build.call(name="sales"))) == (None, None, "existing")
    assert asked(enqueue(build.call(name="sales"), idempotency_key="x")) == ("x", HOUR, "raise")
    key, *rest = asked(enqueue(build.call(name="sales"), unique_by=["name"], key_scope=Period(HOUR, at=NOON)))
    assert key
    assert rest == ["2026-02-03T12:00:00Z/3600s", "raise"]
    with pytest.raises(ValueError, match="on_conflict='replace' is about a key, and the job has none"):
        enqueue(build.call(name="sales"), on_conflict="replace")


def test_a_call_carries_whatever_enqueue_can_be_told_of_it() -> None:
    """What a handler and enqueue() have in common, so that no list of these settings lacks what another has."""
    given = {
        "queue": "q",
        "max_attempts": 2,
        "priority": 1,
        "payload_version": 3,
        "max_payload_bytes": 99,
        "unique_by": ("n",),
        "key_scope": "unfinished",
        "on_conflict": "replace",
    }
    in_common = set(inspect.signature(Registry.handler).parameters) & set(
        inspect.signature(enqueue).parameters
    )
    assert in_common - {"kind"} == set(given)

    def work(n: int) -> None: ...

    call = Registry().handler("k", **given)(work).call(n=1)  # type: ignore[arg-type]  # a mixture
    assert {name: getattr(call, name) for name in given} == given
    job = request_of(enqueue(call)).new_job
    columns = set(given) & set(job._fields)
    assert {name: getattr(job, name) for name in columns} == {name: given[name] for name in columns}


def test_by_name_nothing_of_the_handler_is_known() -> None:
    """The process that enqueues may not have it."""
    by_name = enqueue("document.embed", {"document_id": 7, "model": "m2"})
    assert asked(by_name) == (None, None, "existing")


def test_a_call_takes_its_settings_to_other_processes() -> None:
    """But not the handler, whose function stays where it is."""
    again = pickle.loads(pickle.dumps(CALL))
    assert (again, again.handler) == (CALL, None)
    assert asked(enqueue(again)) == (KEY, "unfinished", "replace")
    big = pickle.loads(pickle.dumps(tiny.call(text="x" * 30)))
    with pytest.raises(ValueError, match=r"20 is the limit.*max_payload_bytes of handler\('tiny'\)"):
        enqueue(big)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_scope": "ever"}, "key_scope='ever': expected"),
        ({"on_conflict": "ignore"}, "on_conflict='ignore': expected"),
        ({"unique_by": ()}, "unique_by is empty"),
    ],
)
def test_a_call_that_no_registration_has_checked_is(settings: dict[str, Any], message: str) -> None:
    """A call can be made by hand: what the table would refuse, and abort a transaction by it, never gets there."""
    call = HandlerCall("k", {"n": 1}, "default", 5, None, 1, **({"unique_by": ("n",)} | settings))
    with pytest.raises(ValueError, match=message):
        enqueue(call)


def test_a_default_makes_no_key() -> None:
    """It may change, and with it what is the same: the call has to say it."""
    with pytest.raises(ValueError, match=r"the payload of 'document\.embed' has no 'model'"):
        enqueue(embed.call(document_id=7))


def add(session: Session, *new: Job) -> list[Enqueued]:
    session.add_all(new)
    session.flush()
    return [job.enqueued for job in new if job.enqueued]


def bulk(session: Session, *new: Job) -> list[Enqueued]:
    return enqueue_many(session, new)


@pytest.mark.parametrize("form", [add, bulk])
def test_the_key_of_the_handler_holds_in_every_way_in(
    client: Client, application: Engine, form: Callable[..., list[Enqueued]]
) -> None:
    """A session's flush and in bulk, sync and async: replaced while it waits, another once it is done."""
    (first,) = client.run(lambda session: form(session, enqueue(CALL)))
    (second,) = client.run(
        lambda session: form(session, enqueue(embed.call(document_id=7, model="m2", page=2)))
    )
    assert (first.outcome, second.id, second.outcome) == ("created", first.id, "replaced")
    assert rows(application, "payload", "key_scope", "unique_key") == [
        ({"document_id": 7, "model": "m2", "page": 2}, "unfinished", KEY)
    ]
    change(application, first.id, status="done", finished_at=NOON, unique_key=None)
    (third,) = client.run(lambda session: form(session, enqueue(CALL)))
    assert third.outcome == "created"


def test_the_key_of_the_handler_holds_on_connections(client: Client, application: Engine) -> None:
    """Core has it as well, also twice in one call."""

    def work(connection: Any) -> list[Enqueued]:
        return enqueue_many(connection, [enqueue(CALL), enqueue(CALL), enqueue(CALL, on_conflict="existing")])

    told = client.run_on_connection(work)
    assert [one.outcome for one in told] == ["created", "replaced", "existing"]
    assert rows(application, "unique_key") == [KEY]


def test_a_duplicate_is_refused_where_the_handler_says_so(application: Engine, session: Session) -> None:
    """By the flush, and the transaction goes on."""
    session.add(enqueue(build.call(name="sales"), idempotency_key="sales"))
    session.flush()
    session.add(enqueue(build.call(name="sales"), idempotency_key="sales"))
    with pytest.raises(DuplicateKeyError):
        session.flush()
    session.commit()
    assert len(rows(application, "id")) == 1


def test_the_key_of_the_handler_may_need_a_row_of_the_same_flush(
    session: Session, application: Engine
) -> None:
    """It is made when the row has its own."""
    session.add(document := Document(title="d"))
    session.add(enqueue(embed.call(document_id=ref(document), model="m2")))
    session.commit()
    assert rows(application, "unique_key") == [key_of(document_id=document.id, model="m2")]


def test_a_typed_field_makes_the_key_that_its_json_makes(session: Session, application: Engine) -> None:
    """Whether it is given as annotated, by reference or by name."""

    def work(ticket_id: UUID) -> None: ...

    typed = Registry().handler("ticket", unique_by=["ticket_id"])(work)
    session.add(ticket := Ticket(id=UUID(int=7), title="t"))
    session.add(enqueue(typed.call(ticket_id=ref(ticket))))
    session.commit()
    (key,) = rows(application, "unique_key")
    assert asked(enqueue(typed.call(ticket_id=UUID(int=7))))[0] == key
    assert asked(enqueue("ticket", {"ticket_id": str(UUID(int=7))}, unique_by=["ticket_id"]))[0] == key


# --- size and version of the payload ------------------------------------------------------------------------------


def test_the_limit_counts_and_names_what_raises_it(session: Session) -> None:
    """For a call its handler, for others the argument; a limit that is given wins."""
    assert enqueue(tiny.call(text="x" * 9))
    with pytest.raises(
        ValueError,
        match=r"takes 21 bytes of JSON, and 20 is the limit: .* or raise max_payload_bytes of handler\('tiny'\)$",
    ):
        enqueue(tiny.call(text="x" * 10))
    assert enqueue(tiny.call(text="x" * 10), max_payload_bytes=21)
    with pytest.raises(
        ValueError, match=r"and 20 is the limit: .*, or raise max_payload_bytes of enqueue\(\)$"
    ):
        enqueue(tiny.call(text="x" * 10), max_payload_bytes=20)
    with pytest.raises(
        ValueError, match=r"262,144 is the limit: .*, or raise max_payload_bytes of enqueue\(\)$"
    ):
        enqueue("k", "x" * 262_143)
    assert enqueue("k", "x" * 262_143, max_payload_bytes=300_000)


def test_the_highest_limit_can_not_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the message has a reference alone to offer."""
    monkeypatch.setattr(payloads, "LARGEST_PAYLOAD_BYTES", 20)
    with pytest.raises(ValueError, match=r"20 is the limit: pass a reference .* document itself$"):
        enqueue("k", "x" * 19, max_payload_bytes=20)


@pytest.mark.parametrize("wrong", [0, -1, 2**26 + 1])
def test_a_limit_has_its_own(wrong: int) -> None:
    """From one byte to 64 MiB."""
    with pytest.raises(ValueError, match=f"max_payload_bytes: {wrong} is not between 1 and 67,108,864"):
        enqueue("k", max_payload_bytes=wrong)


def test_the_limit_holds_for_what_a_flush_fills_in(session: Session) -> None:
    """A reference takes a null's place, and may be longer."""
    session.add(document := Document(title="a title that is far too long"))
    session.add(enqueue(tiny.call(text=ref(document, "title"))))
    with pytest.raises(ValueError, match=r"and 20 is the limit.*max_payload_bytes of handler\('tiny'\)"):
        session.flush()


def test_a_large_payload_keeps_its_limit_in_the_flush(application: Engine, session: Session) -> None:
    """It is written as text again once the reference is filled in."""
    session.add(document := Document(title="d"))
    session.add(enqueue("k", {"text": "x" * 300_000, "id": ref(document)}, max_payload_bytes=400_000))
    session.commit()
    ((payload),) = rows(application, "payload")
    assert (len(payload["text"]), payload["id"]) == (300_000, document.id)


@pytest.mark.parametrize("form", [add, bulk])
def test_every_driver_takes_a_large_payload(
    client: Client, application: Engine, form: Callable[..., list[Enqueued]]
) -> None:
    """Beside small ones, in characters of four bytes."""
    large = {"text": "\U0001f600" * 500_000}
    client.run(
        lambda session: form(
            session, enqueue("k", {}), enqueue("k", large, max_payload_bytes=2_100_000), enqueue("k", {})
        )
    )
    assert rows(application, "payload") == [{}, large, {}]


def test_a_version_is_of_the_code_that_made_the_payload(application: Engine, session: Session) -> None:
    """A call brings it along; by name it is 1, unless the producer says which."""

    def work(ctx: JobContext, n: int) -> None: ...

    versioned = Registry().handler("k", payload_version=3)(work)
    session.add(enqueue("k", {"n": 1}))
    session.flush()
    session.add(enqueue("k", {"n": 1}, payload_version=2))
    session.flush()
    session.add(enqueue(versioned.call(n=1)))
    session.commit()
    assert rows(application, "payload_version") == [1, 2, 3]
    with pytest.raises(TypeError, match="the call brings its payload_version along"):
        enqueue(versioned.call(n=1), payload_version=3)
    with pytest.raises(ValueError, match="payload_version: 0 is not between"):
        enqueue("k", payload_version=0)
