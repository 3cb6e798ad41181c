"""Tools for tests and demos: a throw-away PostgreSQL. Nothing here is needed in production."""

from __future__ import annotations

from sa_jobqueue.testing._attempts import Performed
from sa_jobqueue.testing._drain import Drained, DrainError, drain
from sa_jobqueue.testing.postgres import PostgresSource, find_postgres, start_postgres
from sa_jobqueue.testing.server import PostgresServer, PostgresUnavailableError, StopMode

__all__ = [
    "DrainError",
    "Drained",
    "Performed",
    "PostgresServer",
    "PostgresSource",
    "PostgresUnavailableError",
    "StopMode",
    "drain",
    "find_postgres",
    "start_postgres",
]
