"""The reference environment: the queue's tables and nothing else, from the repository root.

An application has an environment of its own and adds `sa_jobqueue.metadata` to its `target_metadata`.
"""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import URL, create_engine, inspect
from sqlalchemy.schema import CreateSchema

from sa_jobqueue.database import normalise_url
from sa_jobqueue.models import metadata

VARIABLES = ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")


def database_url() -> URL:
    for variable in VARIABLES:
        if url := os.environ.get(variable):
            return normalise_url(url)
    raise SystemExit(
        f"no database URL: set {' or '.join(VARIABLES)}, for example postgresql://user@localhost/app"
    )


def options() -> dict[str, object]:
    return {
        "target_metadata": metadata,
        "include_schemas": metadata.schema is not None,
        "include_name": lambda name, kind, _: kind != "schema" or name == metadata.schema,
        "compare_server_default": True,
        "version_table_schema": metadata.schema,
    }


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, **options())
    with context.begin_transaction():
        if metadata.schema is not None:
            context.execute(CreateSchema(metadata.schema, if_not_exists=True))
        context.run_migrations()
else:
    engine = create_engine(database_url())
    with engine.connect() as connection:
        # Before the revision does it: Alembic's own table goes there too.
        if metadata.schema is not None and not inspect(connection).has_schema(metadata.schema):
            connection.execute(CreateSchema(metadata.schema))
        connection.commit()
        context.configure(connection=connection, **options())
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
