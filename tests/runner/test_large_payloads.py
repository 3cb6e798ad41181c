"""Payloads above the usual limit, which their handler allows: from the producer to the handler, unchanged."""

from __future__ import annotations

import hashlib

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import Registry, enqueue, enqueue_many
from tests.support.runners import drain, row

MEGABYTE = 1024 * 1024


def text_of(size: int) -> str:
    """So many bytes of UTF-8, in characters of four."""
    alphabet = "".join(chr(0x1F600 + number) for number in range(64))
    return alphabet * (size // len(alphabet.encode()))


@pytest.mark.parametrize("size", [MEGABYTE, 20 * MEGABYTE])
@pytest.mark.parametrize("way", ["flush", "bulk", "by name"])
def test_it_arrives_equal(engine: Engine, database_url: str, size: int, way: str) -> None:
    """Character by character."""
    jobs = Registry()
    seen: list[str] = []

    @jobs.handler("document.parse", max_payload_bytes=32 * MEGABYTE)
    def parse(document: str) -> None:
        seen.append(hashlib.sha256(document.encode()).hexdigest())

    sent = text_of(size)
    assert len(sent.encode()) == size
    with Session(engine) as session, session.begin():
        if way == "by name":
            session.add(enqueue("document.parse", {"document": sent}, max_payload_bytes=size + 100))
        elif way == "flush":
            session.add(enqueue(parse.call(document=sent)))
        else:
            enqueue_many(
                session.connection(), [enqueue(parse.call(document=sent)), enqueue(parse.call("small"))]
            )
    drain(jobs, database_url)
    assert row(engine, 1).status == "done"
    assert hashlib.sha256(sent.encode()).hexdigest() in seen
