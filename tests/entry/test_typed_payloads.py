"""Typed payloads through the database: what is enqueued in a flush, by reference or in bulk, arrives as it was passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import PROVIDED, JobContext, Registry, enqueue, enqueue_many, ref
from sa_jobqueue.records import HandlerCall
from sa_jobqueue.testing import Drained, assert_enqueued, drain, perform
from tests.codecs.examples import ONE, ROUND_TRIPS, Colour, Line, Point
from tests.entry.application import Document, Ticket
from tests.entry.conftest import Client

jobs = Registry()
heard: list[Any] = []


@dataclass(frozen=True)
class Report:
    """Several types at once."""

    ticket: UUID
    day: date
    at: datetime
    price: Decimal
    raw: bytes
    took: timedelta
    colours: frozenset[Colour]
    line: Line | None = None


@jobs.handler("ticket.report")
def report(ctx: JobContext, what: Report, tags: tuple[str, ...] = ()) -> None:
    heard.append((what, tags))


@jobs.handler("ticket.close")
def close(ticket_id: UUID, document_ids: list[int] | None = None) -> None:
    heard.append((ticket_id, document_ids))


REPORT = Report(
    ONE,
    date(2026, 11, 30),
    datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC),
    Decimal("10.50"),
    bytes(range(256)),
    timedelta(days=-1, microseconds=1),
    frozenset(Colour),
    Line(Point(1), Point(2, 0.1 + 0.2)),
)


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


def test_it_arrives_as_it_was_passed(client: Client, application: Engine) -> None:
    """By every driver, by flush and in bulk; a test finds the job by the values themselves."""

    def add(session: Session) -> None:
        session.add(enqueue(report.call(what=REPORT, tags=("a", "b"))))
        enqueue_many(session, [enqueue(report.call(REPORT))])
        assert_enqueued(session, report, {"what": REPORT, "tags": ("a", "b")})

    client.run(add)
    client.run(lambda session: drained(session, Drained(done=2)))
    assert heard in ([(REPORT, ("a", "b")), (REPORT, ())], [(REPORT, ()), (REPORT, ("a", "b"))])


@pytest.mark.parametrize(("annotation", "value", "stored"), ROUND_TRIPS)
def test_every_type_arrives_out_of_jsonb(session: Session, annotation: Any, value: Any, stored: Any) -> None:
    """jsonb keeps no text: numbers and objects come back as it writes them."""
    registry, got = Registry(), []

    def handler(item: Any) -> None:
        got.append(item)

    handler.__annotations__["item"] = annotation
    typed = registry.handler("k")(handler)
    session.add(enqueue(typed.call(item=value)))
    drained(session, Drained(done=1), registry)
    assert got == [value]


def test_a_reference_is_written_as_its_field_asks(session: Session, application: Engine) -> None:
    """A UUID that a flush makes, one that is stored, and an integer in a list."""
    ticket, document = Ticket(title="a"), Document(title="b")
    session.add_all([ticket, document])
    session.add(enqueue(close.call(ticket_id=ref(ticket), document_ids=[ref(document)])))
    session.commit()
    session.add(enqueue(close.call(ref(ticket))))
    session.commit()
    drained(session, Drained(done=2))
    assert heard == [(ticket.id, [document.id]), (ticket.id, None)]


def test_a_reference_stands_for_a_constrained_number(session: Session) -> None:
    """The constraint is checked in the flush that knows it."""
    registry, got = Registry(), []

    @registry.handler("k")
    def handler(document_id: pydantic.PositiveInt, other: Annotated[int, msgspec.Meta(gt=0)]) -> None:
        got.append((document_id, other))

    session.add(document := Document(title="a"))
    session.add(enqueue(handler.call(document_id=ref(document), other=ref(document))))
    session.flush()
    drained(session, Drained(done=1), registry)
    assert got == [(document.id, document.id)]


@pytest.mark.parametrize("flushed", [False, True])
def test_a_reference_of_another_type_is_refused_at_the_call(session: Session, flushed: bool) -> None:
    """The column tells its type before the flush knows the value."""
    session.add(document := Document(title="a"))
    if flushed:
        session.flush()
    text = "expected uuid.UUID, got int" if flushed else "ref.. is int there, expected uuid.UUID"
    with pytest.raises(TypeError, match=rf"ticket.close: \$\.ticket_id: {text}"):
        close.call(ticket_id=ref(document))
    with pytest.raises(TypeError, match=r"\$\.document_ids\[0\]: "):
        close.call(ticket_id=ONE, document_ids=[ref(document, "title")])


def test_a_wrong_argument_leaves_the_transaction_alone(session: Session) -> None:
    """It is refused before there is a job."""
    session.add(Document(title="a"))
    with pytest.raises(TypeError, match=r"\$\.what: expected .*Report, got dict"):
        session.add(enqueue(report.call(what={"ticket": ONE})))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.commit()
    assert session.query(Document).count() == 1


def test_an_object_of_a_session_is_refused_with_what_to_pass(session: Session) -> None:
    """Where it is a parameter, and where the annotation says nothing."""
    document = Document(title="a")
    with pytest.raises(
        TypeError, match=r"handler\('k'\): 'document' .* is a mapped class.* take its primary key"
    ):

        @Registry().handler("k")
        def handler(document: Document) -> None: ...

    with pytest.raises(
        TypeError, match=r"\$\.document: .*Document is no JSON type: pass its primary key, or ref\(obj\)"
    ):
        enqueue("k", {"document": document})
    with pytest.raises(
        TypeError, match=r"\$\.ticket_id: expected uuid.UUID, got .*Document: pass its primary key, or"
    ):
        close.call(ticket_id=document)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_by_name_the_run_checks(session: Session) -> None:
    """Whoever enqueues by name passes what is stored, and hears of a mistake from the job."""
    session.add(enqueue("ticket.close", {"ticket_id": str(ONE), "document_ids": [1]}))
    drained(session, Drained(done=1))
    assert heard == [(ONE, [1])]
    session.add(enqueue("ticket.close", {"ticket_id": 7}, max_attempts=1))
    ran = drain(session, jobs, raise_errors=False)
    assert (ran.dead, len(heard)) == (1, 1)
    assert "the payload at $.ticket_id: expected uuid.UUID, got int" in (ran.runs[0].error or "")


def test_keys_of_equal_values_are_equal(session: Session) -> None:
    """Whatever the order of a set, and by name as well."""
    one = enqueue(report.call(REPORT), unique_by=["what"])
    two = enqueue(report.call(REPORT), unique_by=["what"])
    session.add(one)
    session.flush()
    session.add(two)
    session.flush()
    assert two.enqueued is not None
    assert (two.enqueued.outcome, two.enqueued.id) == ("existing", one.id)
    three = enqueue("ticket.report", dict(one.payload), unique_by=["what"])
    assert three.idempotency_key == one.idempotency_key


def test_perform_takes_a_typed_call_and_stand_ins() -> None:
    """The payload goes by way of JSON there too."""
    perform(report.call(REPORT, tags=("a",)))
    assert heard == [(REPORT, ("a",))]
    registry = Registry()
    registry.provide(Mailer, Mailer())

    @registry.handler("mail")
    def mail(mailer: Mailer, to: str) -> None:
        heard.append((mailer, to))

    call: Callable[..., HandlerCall] = mail.call
    fake = Mailer()
    assert perform(call(to="a"), provide={Mailer: fake}).status == "done"
    assert heard[-1] == (fake, "a")


def test_a_stand_in_that_nobody_asks_for_is_refused(session: Session) -> None:
    """Else the handler would be given the real thing, and the test would pass."""
    registry = Registry()
    registry.provide(Mailer, factory=Mailer)

    @registry.handler("mail")
    def mail(to: str, mailer: Mailer = PROVIDED) -> None: ...

    @registry.handler("other")
    def other() -> None: ...

    for key, name in ((FakeMailer, "FakeMailer"), ("mailer", "mailer")):
        refused = rf"provide={{{name}: \.\.\.}}: no handler takes that, and nobody provides it"
        with pytest.raises(ValueError, match=rf"perform\(\): {refused}"):
            perform(mail.call(to="a"), provide={key: FakeMailer()})
        with pytest.raises(ValueError, match=rf"drain\(\): {refused}"):
            drain(session, registry, provide={key: FakeMailer()})
    assert perform(other.call(), provide={Mailer: FakeMailer()}).status == "done"


class Mailer:
    """A client."""


class FakeMailer(Mailer):
    """Its stand-in."""


def drained(session: Session, expected: Drained, registry: Registry = jobs) -> None:
    """All due jobs have run, with this end."""
    assert drain(session, registry) == expected
