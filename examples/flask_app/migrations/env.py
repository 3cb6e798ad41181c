"""Alembic's environment of the application; the queue's tables are one more entry of `target_metadata`."""

from alembic import context

import sa_jobqueue
from examples.flask_app.app import create_app
from examples.flask_app.models import db

with create_app().app_context():
    with db.engine.connect() as connection:
        context.configure(connection=connection, target_metadata=[db.metadata, sa_jobqueue.metadata])
        with context.begin_transaction():
            context.run_migrations()
    db.engine.dispose()
