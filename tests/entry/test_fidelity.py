"""What a handler reads is what was passed, or the call refused it and the transaction goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sa_jobqueue import Job, enqueue, enqueue_many
from tests.entry.application import Document
from tests.entry.conftest import Client
from tests.entry.counting import rows, statements

Form = Callable[[Session, Job], Any]
FORMS: dict[str, Form] = {
    "orm": lambda session, job: session.add(job),
    "core": lambda session, job: enqueue_many(session.connection(), [job]),
    "bulk": lambda session, job: enqueue_many(session, [job]),
}


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


KEPT: list[Any] = [
    None,
    {},
    [],
    False,
    "",
    0,
    {"n": 2**53 + 1},
    {"n": 2**63},
    {"n": 10**30},
    {"n": -(10**3999)},
    {"f": 0.1 + 0.2},
    {"f": [1.0, 1e16, 1e23, 1.7976931348623157e308, 5e-324, -1e-7, 123456789.123456789]},
    {"e": "\U0001f600", "q": "\"\\/\b\f\n\r\t\u2028{}'%s%(a)s:b?", "\U0001f600 key": [True, None]},
    {"literal": "\\\\u0000", "backslash": "\\u0000"},
    nested(50),
    {"": {"": ""}},
]


@pytest.mark.parametrize("form", FORMS)
def test_every_value_comes_back_equal(form: str, client: Client, application: Engine) -> None:
    """Through jsonb and the driver, with its type: numbers exactly, empty and null values apart."""

    def write(session: Session) -> None:
        for number, value in enumerate(KEPT):
            FORMS[form](session, enqueue("k", value, idempotency_key=f"{number:03d}"))

    def read(session: Session) -> list[Any]:
        return list(session.scalars(select(Job.payload).order_by(Job.idempotency_key)))

    client.run(write)
    found = client.run(read)
    assert found == KEPT
    assert repr(found) == repr(KEPT)
    assert rows(application, "kind") == ["k"] * len(KEPT)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"payload": {"s": "\0"}}, r"\$\.s"),
        ({"payload": {"a": [{"b": "x\0y"}]}}, r"\$\.a\[0\]\.b"),
        ({"payload": {"k\0": 1}}, r"\$\['k\\x00'\]"),
        ({"payload": {"s": "\ud800"}}, r"\$\.s"),
        ({"kind": "k\0"}, "kind"),
        ({"queue": "q\0"}, "queue"),
        ({"idempotency_key": "x\0"}, "idempotency_key"),
    ],
)
def test_what_the_server_can_not_store_is_refused_before_any_sql(
    form: str, arguments: dict[str, Any], names: str, client: Client, application: Engine
) -> None:
    """The error names the value; the session needs no rollback, and its own work is committed."""

    def work(session: Session) -> None:
        session.add(Document(title="order"))
        with pytest.raises(ValueError, match=names):
            FORMS[form](session, enqueue(**({"kind": "k"} | arguments)))

    client.run(work)
    assert rows(application, "id") == []
    with Session(application) as session:
        assert session.scalars(select(Document.title)).all() == ["order"]


def test_a_refusal_sends_nothing(application: Engine, session: Session) -> None:
    """Not even the start of a transaction."""
    with statements(application) as seen, pytest.raises(ValueError, match=r"\$\.s"):
        session.add(enqueue("k", {"s": "\0"}))
    assert seen == []
    assert not session.in_transaction()
