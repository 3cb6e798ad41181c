"""Versions in pytest's header: a report says what it was made with."""

from __future__ import annotations

import platform
from importlib.metadata import version

from sa_jobqueue.testing import PostgresUnavailableError, find_postgres


def pytest_report_header() -> list[str]:
    """Python, libraries, and the PostgreSQL that the `server` fixture will start."""
    try:
        postgres = find_postgres().description
    except PostgresUnavailableError as error:
        postgres = str(error).splitlines()[0]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("SQLAlchemy", "alembic", "psycopg"))
    return [f"Python {platform.python_version()}, {libraries}", f"database: {postgres}"]
