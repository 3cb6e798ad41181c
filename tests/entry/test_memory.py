"""What enqueue_many() holds while it works: little more than the payloads, and no object that its caller has let go."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from sa_jobqueue import Enqueued, Job, enqueue, enqueue_many
from sa_jobqueue.batch import Batch
from sa_jobqueue.entry import objects
from sa_jobqueue.records import NewJob
from tests.entry.counting import rows

#: More than two statements of jobs, so that what a statement needs for itself counts but once.
COUNT = 12_000


@pytest.fixture
def connection(application: Engine) -> Iterator[Connection]:
    with application.connect() as connection:
        enqueue_many(connection, [enqueue("k"), enqueue("k")])  # what is made once is there from now on
        enqueue_many(connection, [enqueue("k")])
        yield connection


def payloads(size: int) -> Iterator[Job]:
    """Jobs whose payloads take so many bytes of JSON, no two of them the same object."""
    return (enqueue("k", [f"{number:0{size - 4}d}"]) for number in range(COUNT))


@pytest.mark.parametrize(
    ("form", "size", "most"),
    [("list", 300, 3.0), ("list", 1_000, 1.5), ("generator", 200, 3.0), ("generator", 1_000, 2.3)],
)
def test_a_call_adds_little_more_than_the_payloads(
    form: str, size: int, most: float, connection: Connection
) -> None:
    """Of a list everything is there already; of a generator the texts have to wait until all have been checked."""
    jobs = list(payloads(size)) if form == "list" else payloads(size)
    gc.collect()
    tracemalloc.start()
    try:
        told = enqueue_many(connection, jobs)
        highest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(told) == COUNT
    assert highest < most * size * COUNT


def test_a_job_that_the_caller_lets_go_is_not_held(connection: Connection) -> None:
    """Each is gone before the next but one is asked for."""
    seen: list[weakref.ref[Job]] = []
    there: list[int] = []

    def jobs() -> Iterator[Job]:
        for number in range(100):
            job = enqueue("k", number)
            seen.append(weakref.ref(job))
            yield job
            del job
            there.append(sum(reference() is not None for reference in seen))

    enqueue_many(connection, jobs())
    assert max(there) == 1


@pytest.mark.parametrize("every", [1, 3, 1000])
def test_the_objects_that_the_caller_keeps_are_told(
    every: int, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever others there were between them, and however often the entries of those were swept out."""
    monkeypatch.setattr(objects, "_GONE", 50)
    kept: dict[int, Job] = {}
    spare: list[Job] = []

    def jobs() -> Iterator[Job]:
        for number in range(3_000):
            job = enqueue("k", number)
            if number % every == 0:
                kept[number] = job
            elif number % 2:
                spare.append(job)  # so that the next one has another identity
            if len(spare) > 200:
                spare.clear()
            yield job

    told = enqueue_many(connection, jobs())
    assert {number: job.enqueued for number, job in kept.items()} == {number: told[number] for number in kept}


def test_an_object_that_comes_again_is_noticed(connection: Connection) -> None:
    """Also when it comes from a generator, much later."""
    first = enqueue("k")

    def jobs() -> Iterator[Job]:
        yield first
        yield from (enqueue("k") for _ in range(100))
        yield first

    with pytest.raises(ValueError, match="there twice") as caught:
        enqueue_many(connection, jobs())
    assert any("at index 101" in note for note in caught.value.__notes__)
    assert first.enqueued is None


def test_a_list_that_changes_meanwhile_is_answered_as_it_was(
    application: Engine, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under asyncio others run while the database works."""
    new = [enqueue("k", number) for number in range(3)]
    kept = list(new)
    real = enqueue_many.__globals__["enqueue_jobs"]

    def meanwhile(connection: Connection, batch: Batch) -> list[Enqueued]:
        new.reverse()
        new.append(enqueue("late"))
        told: list[Enqueued] = real(connection, batch)
        return told

    monkeypatch.setitem(enqueue_many.__globals__, "enqueue_jobs", meanwhile)
    told = enqueue_many(connection, new)
    connection.commit()
    assert [job.enqueued for job in kept] == told
    stored = dict(rows(application, "id", "payload"))
    assert [stored[one.id] for one in told] == [0, 1, 2]


def test_a_batch_gives_its_jobs_back() -> None:
    """By place, as a slice, one after the other, and by column."""
    new_jobs = [NewJob(payload=str(n), kind="ab"[n % 2], priority=n // 4) for n in range(8)]
    batch = Batch(new_jobs)
    assert list(batch) == new_jobs
    assert batch[3] == new_jobs[3]
    assert list(batch[2:5]) == new_jobs[2:5]
    assert {(one.kind, one.priority) for one in batch.distinct()} == {("a", 0), ("b", 0), ("a", 1), ("b", 1)}
    assert {(one.kind, one.priority) for one in batch[2:5].distinct()} == {("a", 0), ("b", 0), ("a", 1)}
    for part in (batch, batch[1:2], Batch(new_jobs[:1] * 3)):
        by_column = {name: [getattr(one, name) for one in part] for name in NewJob._fields}
        assert {name: list(column) for name, column in part.columns().items()} == by_column
