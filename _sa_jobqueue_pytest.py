"""The pytest plugin of sa_jobqueue: one fixture.

pytest loads it in every run where sa_jobqueue is installed, and so it imports nothing until the fixture is used. It
stands outside of the package because that would import SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sa_jobqueue.testing import PostgresServer


@pytest.fixture(scope="session")
def jobqueue_postgres() -> Iterator[PostgresServer]:
    """A throw-away PostgreSQL for the whole run (see sa_jobqueue.testing): `.url()`, `.create_database(name)`."""
    from sa_jobqueue.testing import start_postgres

    # A test may crash, the machine won't: what is lost with the machine need not be on disk.
    with start_postgres(settings={"fsync": "off", "full_page_writes": "off"}) as server:
        yield server
