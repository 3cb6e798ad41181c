"""Alembic's environment of the application; the queue's tables are one more entry of `target_metadata`."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine

import sa_jobqueue
from examples.documents.database import database_url
from examples.documents.models import Base

target_metadata = [Base.metadata, sa_jobqueue.metadata]

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, target_metadata=target_metadata)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(database_url())
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=target_metadata)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
