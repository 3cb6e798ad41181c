"""An application with an Alembic history of its own, in which the queue's directive stands in the middle."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from alembic import command
from alembic.config import Config
from sqlalchemy import make_url

from sa_jobqueue.migrations import LATEST

FIRST, QUEUE, LAST = "first", "queue", "last"

_ENV = {
    "sync": """
        from alembic import context
        from sqlalchemy import create_engine, pool

        if context.is_offline_mode():
            context.configure(dialect_name="postgresql", literal_binds=True, transaction_per_migration={each})
            with context.begin_transaction():
                context.run_migrations()
        else:
            engine = create_engine({url!r}, poolclass=pool.NullPool)
            with engine.connect() as connection:
                context.configure(connection=connection, transaction_per_migration={each})
                with context.begin_transaction():
                    context.run_migrations()
    """,
    "async": """
        import asyncio

        from alembic import context
        from sqlalchemy import pool
        from sqlalchemy.ext.asyncio import create_async_engine

        def run(connection):
            context.configure(connection=connection, transaction_per_migration={each})
            with context.begin_transaction():
                context.run_migrations()

        async def main():
            engine = create_async_engine({async_url!r}, poolclass=pool.NullPool)
            async with engine.connect() as connection:
                await connection.run_sync(run)

        asyncio.run(main())
    """,
}
_REVISION = """
    from alembic import op
    import sqlalchemy as sa
    import sa_jobqueue.migrations

    revision = {revision!r}
    down_revision = {down!r}

    def upgrade():
        {upgrade}

    def downgrade():
        {downgrade}
"""
_UP_FIRST = (
    """op.execute("CREATE TYPE job_status AS ENUM ('ready', 'running')"); """
    """op.execute("CREATE FUNCTION notify() RETURNS int LANGUAGE sql AS 'SELECT 1'"); """
    """op.create_table("jobqueue_jobs_archive", sa.Column("id", sa.Integer, primary_key=True))"""
)
_DOWN_FIRST = """op.drop_table("jobqueue_jobs_archive"); op.execute("DROP FUNCTION notify()"); op.execute("DROP TYPE job_status")"""
_UP_LAST = """op.add_column("jobqueue_jobs_archive", sa.Column("note", sa.Text))"""
_DOWN_LAST = """op.drop_column("jobqueue_jobs_archive", "note")"""


@dataclass(frozen=True, slots=True)
class Application:
    """The environment in `folder`. Revisions: first (look-alikes of ours), queue (our directive), last."""

    folder: Path

    def upgrade(self, target: str = "head") -> None:
        command.upgrade(self._config(), target)

    def downgrade(self, target: str) -> None:
        command.downgrade(self._config(), target)

    def upgrade_text(self) -> str:
        """What `alembic upgrade head --sql` prints."""
        output = io.StringIO()
        command.upgrade(self._config(output), "head", sql=True)
        return output.getvalue()

    def downgrade_text(self) -> str:
        """What `alembic downgrade head:base --sql` prints."""
        output = io.StringIO()
        command.downgrade(self._config(output), "last:base", sql=True)
        return output.getvalue()

    def _config(self, output: io.StringIO | None = None) -> Config:
        config = Config() if output is None else Config(output_buffer=output)
        config.set_main_option("script_location", str(self.folder))
        config.set_main_option("path_separator", "os")
        return config


def write_application(
    folder: Path,
    url: str,
    *,
    kind: str = "sync",
    transaction_per_migration: bool = False,
    schema: str | None = None,
    drop_jobs: bool = False,
) -> Application:
    """Write the environment; `kind` is sync or async (asyncpg)."""
    async_url = make_url(url).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
    env = dedent(_ENV[kind]).format(url=url, async_url=async_url, each=transaction_per_migration)
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(env)
    where = "" if schema is None else f", schema={schema!r}"
    flag = ", drop_jobs=True" if drop_jobs else ""
    revisions = [
        (FIRST, None, _UP_FIRST, _DOWN_FIRST),
        (
            QUEUE,
            FIRST,
            f"op.migrate_jobqueue(0, {LATEST}{where})",
            f"op.migrate_jobqueue({LATEST}, 0{where}{flag})",
        ),
        (LAST, QUEUE, _UP_LAST, _DOWN_LAST),
    ]
    for revision, down, upgrade, downgrade in revisions:
        text = dedent(_REVISION).format(revision=revision, down=down, upgrade=upgrade, downgrade=downgrade)
        (folder / "versions" / f"{revision}.py").write_text(text)
    return Application(folder)
