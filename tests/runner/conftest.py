"""What several of the runner's tests are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from sa_jobqueue.testing import start_postgres
from sa_jobqueue.testing.server import connect
from tests.support.databases import FAST, install
from tests.support.secrets import PASSWORD, SECRET


@pytest.fixture(params=["thread", "asyncio"])
def where(request: pytest.FixtureRequest) -> str:
    """The executor that the handlers run in; on asyncio they are async."""
    return str(request.param)


@pytest.fixture(scope="session")
def guarded_url() -> Iterator[str]:
    """A database of the queue that asks for a password, in a URL that has it."""
    with start_postgres(settings=FAST, tcp=True) as server:
        with connect(server.url(tcp=True)) as connection:
            connection.execute(f"CREATE ROLE app SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        url = make_url(server.url(tcp=True)).set(username="app", password=PASSWORD)
        shown = url.render_as_string(hide_password=False)
        install(shown)
        yield shown


@pytest.fixture
def guarded(guarded_url: str) -> Iterator[Engine]:
    """An application's engine there; the tables are empty."""
    engine = create_engine(guarded_url)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE jobqueue_jobs, jobqueue_idle"))
        connection.execute(text("CREATE TABLE IF NOT EXISTS tokens (token text PRIMARY KEY)"))
        connection.execute(
            text("INSERT INTO tokens VALUES (:token) ON CONFLICT DO NOTHING"), {"token": SECRET}
        )
        connection.execute(
            text(
                "ALTER TABLE jobqueue_jobs DROP CONSTRAINT IF EXISTS app_c, "
                "ADD CONSTRAINT app_c CHECK (kind <> 'refused' OR status <> 'done')"
            )
        )
    yield engine
    engine.dispose()
