"""The reference environment: the queue's tables and nothing else, from the repository root.

An application has an environment of its own and adds `sa_jobqueue.metadata` to its `target_metadata`.
"""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateSchema

from sa_jobqueue.models import metadata

VARIABLES = ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")


def database_url() -> str:
    for variable in VARIABLES:
        if url := os.environ.get(variable):
            # "postgresql://" means another driver in each release line of SQLAlchemy; psycopg works in all of them.
            parsed = make_url(
                url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url
            )
            if parsed.drivername == "postgresql":
                parsed = parsed.set(drivername="postgresql+psycopg")
            return parsed.render_as_string(hide_password=False)
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
