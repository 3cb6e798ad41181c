"""One database for the whole table, and one engine for each driver: a cell takes milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from sa_jobqueue.testing.server import connect
from tests.contract.cells import DRIVERS
from tests.support.databases import fail_on_others
from tests.support.reuse import Databases

# As with a runner that waits: every INSERT of jobs notifies, which two-phase commit is refused for.
_NOTIFY = "sa_jobqueue.notify"
_LIBPQ = {"options": f"-c {_NOTIFY}=always"}
_ASYNCPG = {"server_settings": {_NOTIFY: "always"}}
_EMPTY = "DELETE FROM related_jobs; DELETE FROM documents; DELETE FROM jobqueue_jobs"


class Place:
    """The database, the drivers' engines on it, the loop that the async ones belong to, and somebody who looks on."""

    def __init__(self, url: str, runner: asyncio.Runner, observer: psycopg.Connection[Any]) -> None:
        self.url = url
        #: As the driver itself wants it.
        self.dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._runner = runner
        self._observer = observer
        self.engines: dict[str, Any] = {}
        for name, is_async in DRIVERS.items():
            there = make_url(url).set(drivername=f"postgresql+{name.split()[0]}")
            create: Any = create_async_engine if is_async else create_engine
            self.engines[name] = create(there, connect_args=_ASYNCPG if name == "asyncpg" else _LIBPQ)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    def jobs(self) -> list[tuple[Any, ...]]:
        """Id, kind and payload of all that is committed, in order of kinds: as another connection sees it."""
        return self._observer.execute("SELECT id, kind, payload FROM jobqueue_jobs ORDER BY kind").fetchall()

    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.jobs()]

    def statuses(self) -> list[tuple[Any, ...]]:
        """Kind, status and result of all that is committed, in order of kinds."""
        query = "SELECT kind, status, result FROM jobqueue_jobs ORDER BY kind"
        return self._observer.execute(query).fetchall()

    def last_error(self) -> str:
        """That of the only job."""
        ((error,),) = self._observer.execute("SELECT last_error FROM jobqueue_jobs").fetchall()
        return str(error)

    def titles(self) -> list[str]:
        """Documents of the application that are committed, but for those that point at a job."""
        found = self._observer.execute("SELECT title FROM documents WHERE title <> 'pointing' ORDER BY title")
        return [title for (title,) in found]

    def hold(self, key: str) -> int:
        """A committed job of somebody else's that has the key; its id."""
        row = self._observer.execute(
            "INSERT INTO jobqueue_jobs (kind, idempotency_key, key_scope, unique_key) "
            "VALUES ('holder', %(key)s, 'row', %(key)s) RETURNING id",
            {"key": key},
        ).fetchone()
        assert row
        return int(row[0])

    def empty(self) -> None:
        self._observer.execute(_EMPTY)

    def close(self) -> None:
        for name, engine in self.engines.items():
            if DRIVERS[name]:
                self._runner.run(engine.dispose())
            else:
                engine.dispose()


@pytest.fixture(scope="package")
def whole_place(application_databases: Databases) -> Iterator[Place]:
    with (
        application_databases.one(fail_on_others) as url,
        asyncio.Runner() as runner,
        connect(url) as observer,
    ):
        place = Place(url, runner, observer)
        yield place
        place.close()


@pytest.fixture
def place(whole_place: Place) -> Iterator[Place]:
    """It with nothing in it."""
    yield whole_place
    whole_place.empty()
