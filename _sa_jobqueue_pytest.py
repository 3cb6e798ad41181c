"""The pytest plugin of sa_jobqueue: one fixture.

pytest loads it in every run where sa_jobqueue is installed, and so it imports nothing until the fixture is used. It
stands outside of the package because that would import SQLAlchemy.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def jobqueue_database_url() -> Iterator[str]:
    """The URL (psycopg) of an empty PostgreSQL database for this run, dropped at its end (see sa_jobqueue.testing)."""
    from sa_jobqueue.testing import start_postgres

    name = f"sa_jobqueue_{os.getpid()}_{secrets.token_hex(4)}"  # the server may be one that other runs share
    # A test may crash, the machine won't: what is lost with the machine need not be on disk.
    with start_postgres(settings={"fsync": "off", "full_page_writes": "off"}) as server:
        server.create_database(name)
        try:
            yield server.url(name)
        finally:
            server.drop_database(name)
