"""What importing the package does, and what it must not."""

from __future__ import annotations

import subprocess
import sys

import sa_jobqueue

OPTIONAL = (
    "asyncio",
    "asyncpg",
    "click",
    "greenlet",
    "psycopg",
    "psycopg2",
    "sa_jobqueue.runner",
    "sqlalchemy.ext.asyncio",
)


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*[name for name in {OPTIONAL!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_no_driver_no_runner_and_no_click() -> None:
    """A web application that only enqueues pays for nothing else. (SQLAlchemy itself imports asyncio, 2.0 greenlet too.)"""
    assert loaded_after("import sa_jobqueue") <= loaded_after("import sqlalchemy.orm")
    assert loaded_after("import sa_jobqueue.models") <= loaded_after("import sqlalchemy.orm")


def test_whoever_imports_the_model_has_the_hook() -> None:
    """A Job must never meet a Session that inserts it the stock way."""
    code = (
        "from sa_jobqueue.models import Job; from sqlalchemy import event; from sqlalchemy.orm import Session;"
        "import sa_jobqueue.entry.unit_of_work as u;"
        "assert event.contains(Session, 'before_flush', u._insert_pending_jobs)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_names_are_there() -> None:
    """`from sa_jobqueue import *` gives what the documentation names."""
    assert len(set(sa_jobqueue.__all__)) == len(sa_jobqueue.__all__)
    assert all(hasattr(sa_jobqueue, name) for name in sa_jobqueue.__all__)
