"""Payloads of every size that can be stored: all arrive as they were given, and few are in memory at once."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sa_jobqueue.entry.bulk import enqueue_many
from sa_jobqueue.entry.request import enqueue
from sa_jobqueue.events import JobsClaimed, JobSettled
from sa_jobqueue.names import LONGEST_NAME
from sa_jobqueue.records import DEFAULT_MAX_PAYLOAD_BYTES
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import QueueSettings
from sa_jobqueue.runner.pace import CLAIM_AHEAD_SIZE
from tests.support.jobs import insert_job
from tests.support.runners import Recorder, drain, running

#: Takes four bytes.
LETTER = "\U0001f40c"
#: Bytes of JSON: around what a notification may carry, far beyond it, and the largest.
SIZES = [7_990, 8_000, 20_000, 250_000, DEFAULT_MAX_PAYLOAD_BYTES]
ALWAYS = text("SET LOCAL sa_jobqueue.notify = 'always'")


def of_size(size: int) -> dict[str, str]:
    """A payload that takes so many bytes of JSON, of characters of four bytes as far as they fit."""
    room = size - len(json.dumps({"text": ""}, separators=(",", ":")))
    return {"text": LETTER * (room // 4) + "x" * (room % 4)}


@pytest.mark.parametrize("size", SIZES)
def test_a_large_payload_arrives_equal(engine: Engine, database_url: str, size: int) -> None:
    """With a runner that is to be woken: what wakes it carries no payload, so none is too large for that."""
    jobs, got = Registry(), list[str]()

    @jobs.handler("large")
    def large(text: str) -> None:
        got.append(text)

    payload = of_size(size)
    with running(jobs, database_url) as recorder:
        with Session(engine) as session, session.begin():
            session.execute(ALWAYS)
            session.add(enqueue("large", payload))
        recorder.wait_for(JobSettled)
    assert got == [payload["text"]]


def test_one_byte_more_is_refused_before_any_sql() -> None:
    """There is no database here: what is too large never comes near one."""
    with pytest.raises(ValueError, match="262,145 bytes of JSON, and 262,144 is the limit"):
        enqueue("large", of_size(DEFAULT_MAX_PAYLOAD_BYTES + 1))


def test_many_jobs_in_many_queues_are_one_transaction(engine: Engine, database_url: str) -> None:
    """A notification for each queue, or one that lists ids, would be too long; ours says nothing at all."""
    jobs, got = Registry(), Counter[str]()
    queues = [f"queue {number}" for number in range(200)]

    @jobs.handler("one", queue=queues[0])
    def one(queue: str) -> None:
        got[queue] += 1

    with engine.begin() as connection:
        connection.execute(ALWAYS)
        wanted = [enqueue("one", {"queue": queue}, queue=queue) for queue in queues for _ in range(25)]
        assert len(enqueue_many(connection, wanted)) == 5_000
    drain(jobs, database_url, queues=dict.fromkeys(queues, 1))
    assert got == dict.fromkeys(queues, 25)


def test_names_of_the_largest_length(engine: Engine, database_url: str) -> None:
    """Of characters of four bytes each, as kind and as queue; a runner serves them as any others."""
    jobs, name, got = Registry(), LETTER * LONGEST_NAME, list[int]()

    @jobs.handler(name, queue=name)
    def handler(number: int) -> None:
        got.append(number)

    with running(jobs, database_url, queues={name: 1}) as recorder:
        with Session(engine) as session, session.begin():
            session.execute(ALWAYS)
            session.add(enqueue(name, {"number": 7}, queue=name))
        recorder.wait_for(JobSettled)
    assert got == [7]


@pytest.mark.parametrize(
    "arguments", [{"kind": LETTER * (LONGEST_NAME + 1)}, {"queue": LETTER * (LONGEST_NAME + 1)}]
)
def test_longer_names_are_refused_before_any_sql(arguments: dict[str, Any]) -> None:
    """By the name of the argument."""
    (argument,) = arguments
    with pytest.raises(ValueError, match=f"{argument}.*at most 200 characters, got 201"):
        enqueue(arguments.pop("kind", "k"), {}, **arguments)


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_few_large_payloads_are_held_at_once(engine: Engine, database_url: str, executor: Any) -> None:
    """Short jobs are claimed ahead of free slots, but of large ones only as many as their size allows."""
    jobs, slots, size, count = Registry(), 10, 2**19, 200

    def large(text: str) -> None: ...

    async def large_async(text: str) -> None: ...

    jobs.handler("large")(large_async if executor == "asyncio" else large)
    with engine.begin() as connection:
        for _ in range(count):
            insert_job(connection, kind="large", payload={"text": "x" * size})
    recorder = drain(jobs, database_url, queues={"default": QueueSettings(slots, executor)})
    assert len(recorder.of(JobSettled)) == count
    # Outcomes that are not written yet are in there as well, and each has left its slot to another job.
    assert most_held(recorder) <= 2 * (slots + CLAIM_AHEAD_SIZE // size)


def test_large_payloads_behind_small_ones_are_no_surprise(engine: Engine, database_url: str) -> None:
    """Where a handler allows them, no claim is larger than the free slots, whatever came before."""
    jobs, slots = Registry(), 10

    @jobs.handler("large", max_payload_bytes=2 * CLAIM_AHEAD_SIZE)
    def large(text: str) -> None: ...

    with engine.begin() as connection:
        for size in [*[1] * 300, *[2**20] * 50]:
            insert_job(connection, kind="large", payload={"text": "x" * size})
    recorder = drain(jobs, database_url, queues={"default": slots})
    assert len(recorder.of(JobSettled)) == 350
    assert max(claim.count for claim in recorder.of(JobsClaimed)) <= slots


def most_held(recorder: Recorder) -> int:
    """How many jobs were claimed and not settled at once."""
    held, most = 0, 0
    for event in recorder.events:
        held += event.count if isinstance(event, JobsClaimed) else -isinstance(event, JobSettled)
        most = max(most, held)
    assert held == 0
    return most
