"""What type checkers see of the test server."""

from __future__ import annotations

from typing import assert_type

from sa_jobqueue.testing import PostgresServer, PostgresSource, find_postgres, start_postgres

assert_type(find_postgres("wheel"), PostgresSource)
with start_postgres("local", settings={"fsync": "off"}, tcp=True) as server:
    assert_type(server, PostgresServer)
    assert_type(server.url("app", "asyncpg", tcp=True), str)
    server.restart("immediate")
start_postgres("podman")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
