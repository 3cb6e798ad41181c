"""Runs side by side, each with a database and processes of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from sa_jobqueue.testing import PostgresServer
from tests.crash_points.enumeration import Workers
from tests.crash_points.runs import Place
from tests.support.databases import fresh_database

#: Runs mostly wait for leases.
AT_ONCE = 3 * (os.cpu_count() or 1)


@pytest.fixture(scope="package")
def crew(server: PostgresServer, template_database: str) -> Iterator[Workers]:
    with ExitStack() as stack:
        urls = [
            stack.enter_context(fresh_database(server, template=template_database)) for _ in range(AT_ONCE)
        ]
        places = [stack.enter_context(closing(Place(url))) for url in urls]
        yield Workers(places)
