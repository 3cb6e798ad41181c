"""Alembic's environment of the application; the queue's tables are one more entry of `target_metadata`."""

import os

from alembic import context
from sqlalchemy import create_engine

import sa_jobqueue
from examples.fastapi_app.models import Base

engine = create_engine(os.environ["DATABASE_URL"])
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=[Base.metadata, sa_jobqueue.metadata])
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
