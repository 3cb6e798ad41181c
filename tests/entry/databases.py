"""Databases that also have the application's tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine, make_url

from sa_jobqueue.testing import PostgresServer
from tests.entry.application import Base
from tests.support.databases import fail_on_others, fresh_database, reused_databases
from tests.support.reuse import Databases


@pytest.fixture(scope="session")
def application_databases(server: PostgresServer, template_database: str) -> Iterator[Databases]:
    """Databases with the newest schema and the application's tables, each used by one test at a time."""
    with fresh_database(server, template=template_database) as url:
        Base.metadata.create_all(create_engine(url, poolclass=NullPool))
        with reused_databases(server, str(make_url(url).database)) as found:
            yield found


@pytest.fixture
def application_url(application_databases: Databases) -> Iterator[str]:
    """The URL of one with nothing in it."""
    with application_databases.one(fail_on_others) as url:
        yield url
