"""Are the queue's tables there, and are they new enough for this release?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.errors import SchemaVersionError
from sa_jobqueue.models import SCHEMA_VERSION, schema_in_use
from sa_jobqueue.queries import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection


def installed_version(connection: Connection) -> int | None:
    """The version of the queue's tables in this database, None without them."""
    return schema.version(connection.execute(schema.comment()).scalar_one())


def require(installed: int | None) -> None:
    """Raise SchemaVersionError when the tables are missing or older than this release needs; newer is fine."""
    if installed is None or installed < SCHEMA_VERSION:
        raise SchemaVersionError(_advice(installed), installed=installed, required=SCHEMA_VERSION)


def _advice(installed: int | None) -> str:
    name = schema_in_use()
    place = f"in schema {name!r}" if name is not None else "on the search_path"
    argument = "" if name is None else f", schema={name!r}"
    found = (
        f"no jobqueue_jobs table of sa_jobqueue {place}"
        if installed is None
        else (f"the queue's tables {place} have version {installed}, this release needs {SCHEMA_VERSION}")
    )
    return (
        f"{found}: add a revision to your Alembic history with "
        f"op.migrate_jobqueue({installed or 0}, {SCHEMA_VERSION}{argument}) (unless you have it already) and run: "
        "alembic upgrade head"
    )
