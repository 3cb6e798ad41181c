"""Are the queue's tables there, and are they new enough for this release?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.errors import SchemaVersionError
from sa_jobqueue.models import SCHEMA_VERSION, schema_in_use
from sa_jobqueue.queries.schema import comment, version

if TYPE_CHECKING:
    from sqlalchemy import Connection


def installed_version(connection: Connection) -> int | None:
    """The version of the queue's tables in this database, None without them."""
    return version(connection.execute(comment()).scalar_one())


def require(installed: int | None) -> None:
    """Raise SchemaVersionError when the tables are missing or older than this release needs; newer is fine."""
    if installed is None or installed < SCHEMA_VERSION:
        found = (
            f"no jobqueue_jobs table of sa_jobqueue {place()}"
            if installed is None
            else f"the queue's tables {place()} have version {installed}, this release needs {SCHEMA_VERSION}"
        )
        raise SchemaVersionError(
            f"{found}: {cure(installed or 0)}", installed=installed, required=SCHEMA_VERSION
        )


def place() -> str:
    """Where the tables are looked for."""
    schema = schema_in_use()
    return "on the search_path" if schema is None else f"in schema {schema!r}"


def cure(installed: int = 0) -> str:
    """What to do about tables of this version."""
    schema = schema_in_use()
    argument = "" if schema is None else f", {schema=}"
    return (
        f"add a revision to your Alembic history with op.migrate_jobqueue({installed}, {SCHEMA_VERSION}{argument}) "
        "(unless you have it already) and run: alembic upgrade head"
    )
