"""Handlers that complete their jobs in sessions of the application's own, over every driver."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import JobContext, Registry, enqueue
from sa_jobqueue.runner import Runner
from tests.contract.cells import DRIVERS
from tests.contract.conftest import Place
from tests.entry.application import Document
from tests.support.runners import settings

SYNC = [name for name, is_async in DRIVERS.items() if not is_async]
ASYNC = [name for name, is_async in DRIVERS.items() if is_async]


def run(registry: Registry, url: str) -> None:
    assert Runner(registry, url, settings(burst=True)).run(handle_signals=False) == 0


@pytest.mark.parametrize("driver", SYNC)
def test_a_sync_session(driver: str, place: Place) -> None:
    """What the block writes, a follow-up among it, and the end of the job are one commit.

    The runner is given the application's own URL: it speaks psycopg 3 itself, whatever the URL names.
    """
    url = make_url(place.url).set(drivername=f"postgresql+{driver}")
    engine = create_engine(url)
    registry = Registry()

    @registry.handler("first")
    def first(ctx: JobContext, title: str) -> None:
        with ctx.complete(sessionmaker(engine), result={"title": title}) as session:
            session.add_all([Document(title=title), enqueue("second", {"title": title})])

    @registry.handler("second")
    def second(title: str) -> str:
        return title

    with sessionmaker(engine).begin() as session:
        session.add(enqueue(first.call(title="done")))
    run(registry, url.render_as_string(hide_password=False))
    engine.dispose()
    assert place.titles() == ["done"]
    assert place.statuses() == [("first", "done", {"title": "done"}), ("second", "done", None)]


@pytest.mark.parametrize("driver", ASYNC)
def test_an_async_session(driver: str, place: Place) -> None:
    """The same on an event loop."""
    url = make_url(place.url).set(drivername=f"postgresql+{driver.split()[0]}")
    registry = Registry()

    @registry.handler("first")
    async def first(ctx: JobContext, title: str) -> None:
        engine = create_async_engine(url)
        try:
            async with ctx.complete(async_sessionmaker(engine), result={"title": title}) as session:
                session.add_all([Document(title=title), enqueue("second", {"title": title})])
        finally:
            await engine.dispose()

    @registry.handler("second")
    async def second(title: str) -> None:
        await asyncio.sleep(0)

    async def add() -> None:
        async with async_sessionmaker(place.engines[driver]).begin() as session:
            session.add(enqueue(first.call(title="done")))

    place.run(add())
    run(registry, url.render_as_string(hide_password=False))
    assert place.titles() == ["done"]
    assert place.statuses() == [("first", "done", {"title": "done"}), ("second", "done", None)]


@pytest.mark.parametrize("driver", SYNC)
def test_a_block_that_fails(driver: str, place: Place) -> None:
    """A duplicate key of the application's own takes all of it back; the job is tried again and says why."""
    engine = create_engine(make_url(place.url).set(drivername=f"postgresql+{driver}"))
    registry = Registry()
    tries: list[int] = []

    @registry.handler("k")
    def fails(ctx: JobContext) -> None:
        tries.append(ctx.attempt)
        with ctx.complete(sessionmaker(engine)) as session:
            session.add_all([enqueue("follow-up"), Document(id=1, title="S3CR3T")])
            session.flush()
            session.expunge_all()
            session.add(Document(id=1, title="S3CR3T"))

    with sessionmaker(engine).begin() as session:
        session.add(enqueue("k", max_attempts=1))
    run(registry, place.url)
    engine.dispose()
    assert (tries, place.titles()) == ([1], [])
    assert place.statuses() == [("k", "dead", None)]
    assert "UniqueViolation" in place.last_error()
    assert "S3CR3T" not in place.last_error()
