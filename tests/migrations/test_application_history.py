"""The directive in an application's own history: every way to run Alembic ends in the same tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.store.store import Store
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support.application import Application, write_application
from tests.support.catalogue import Catalogue, everything, job_table
from tests.support.databases import fresh_database
from tests.support.jobs import MINUTE, add_job
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = pytest.mark.parametrize("schema", [None, "jobs", 'Odd "name"'])


@pytest.fixture
def expected(server: PostgresServer, tmp_path: Path) -> Catalogue:
    """What the plain way, `alembic upgrade head` in one transaction, makes of an empty database."""
    with fresh_database(server) as url:
        write_application(tmp_path / "plain", url).upgrade()
        return everything(url)


def create_schema(url: str, schema: str | None) -> None:
    if schema is not None:
        with connect(url) as connection:
            quoted = schema.replace('"', '""')
            connection.execute(f'CREATE SCHEMA "{quoted}"'.encode())


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("each", [False, True], ids=["one transaction", "one per migration"])
def test_every_environment_ends_in_the_same_tables(
    empty_database_url: str, tmp_path: Path, expected: Catalogue, kind: str, *, each: bool
) -> None:
    """Sync or async, one transaction or one for each migration: the catalogue is the same."""
    write_application(
        tmp_path / "app", empty_database_url, kind=kind, transaction_per_migration=each
    ).upgrade()
    assert everything(empty_database_url) == expected


@pytest.mark.parametrize("each", [False, True], ids=["one transaction", "one per migration"])
def test_the_text_of_a_dry_run(
    empty_database_url: str, tmp_path: Path, expected: Catalogue, *, each: bool
) -> None:
    """`--sql` needs no server; its text, version rows included, does the same, and back again."""
    nowhere = "postgresql+psycopg://nobody@localhost:1/nowhere"
    application = write_application(tmp_path / "app", nowhere, transaction_per_migration=each)
    text = application.upgrade_text()
    with connect(empty_database_url) as connection:
        connection.execute(text.encode())
        versions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert versions == [("last",)]
    assert everything(empty_database_url) == expected
    with connect(empty_database_url) as connection:
        connection.execute(application.downgrade_text().encode())
        # Older releases of Alembic drop their own table with the last revision, newer ones leave it empty.
        if connection.execute("SELECT to_regclass('alembic_version')").fetchall() != [(None,)]:
            assert connection.execute("SELECT count(*) FROM alembic_version").fetchall() == [(0,)]
        assert connection.execute("SELECT to_regclass('jobqueue_jobs')").fetchall() == [(None,)]


def test_the_text_inside_one_transaction(
    empty_database_url: str, tmp_path: Path, expected: Catalogue
) -> None:
    """Somebody else's transaction around the text, as `psql -1` makes one: all of it, or nothing."""
    text = write_application(tmp_path / "app", empty_database_url).upgrade_text()
    lines = [line for line in text.splitlines() if line not in ("BEGIN;", "COMMIT;")]
    before = everything(empty_database_url)
    with connect(empty_database_url) as connection, connection.transaction(force_rollback=True):
        connection.execute("\n".join(lines).encode())
    assert everything(empty_database_url) == before
    with connect(empty_database_url) as connection, connection.transaction():
        connection.execute("\n".join(lines).encode())
    assert everything(empty_database_url) == expected


@pytest.mark.parametrize("options", [["-1"], []], ids=["one transaction", "as written"])
def test_the_text_through_psql(
    server: PostgresServer, empty_database_url: str, tmp_path: Path, expected: Catalogue, options: list[str]
) -> None:
    """What a database administrator does with the text: psql, stopping at the first error."""
    bundled = None if server.bin_folder is None else server.bin_folder / "psql"
    psql = str(bundled) if bundled is not None and bundled.exists() else shutil.which("psql")
    if psql is None:
        pytest.skip("there is no program psql with the server or on PATH")
    text = write_application(tmp_path / "app", empty_database_url).upgrade_text()
    address = make_url(empty_database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    command = [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", *options, address]
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    assert everything(empty_database_url) == expected


def test_a_killed_upgrade_is_repeated(empty_database_url: str, tmp_path: Path, expected: Catalogue) -> None:
    """An upgrade that dies half-way, our tables made, leaves nothing behind; the next run does it all."""
    application = write_application(tmp_path / "app", empty_database_url)
    application.upgrade("first")
    before = everything(empty_database_url)
    script = "import sys; from tests.support.application import Application; from pathlib import Path; "
    script += "Application(Path(sys.argv[1])).upgrade()"
    with connect(empty_database_url) as holder, connect(empty_database_url) as watcher:

        def others(condition: str) -> list[tuple[int]]:
            query = f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {condition}"
            return watcher.execute(query.encode()).fetchall()

        with holder.transaction(force_rollback=True):
            # The last migration alters this table: there the upgrade waits, the queue's step behind it.
            holder.execute("LOCK TABLE jobqueue_jobs_archive")
            victim = subprocess.Popen(
                [sys.executable, "-c", script, str(application.folder)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            try:
                (waiting,) = wait_until(lambda: others("wait_event_type = 'Lock'"))
            finally:
                victim.kill()
                victim.wait()
            assert everything(empty_database_url) == before
        wait_until(
            lambda: not others(f"pid = {waiting[0]}"), what="the server ends the dead client's session"
        )
    assert everything(empty_database_url) == before
    application.upgrade()
    assert everything(empty_database_url) == expected


@SCHEMAS
def test_down_and_up_again(empty_database_url: str, tmp_path: Path, schema: str | None) -> None:
    """A downgrade leaves nothing of ours and touches nothing of theirs, so that the next upgrade works, and the queue."""
    create_schema(empty_database_url, schema)
    application = write_application(tmp_path / "app", empty_database_url, schema=schema)
    empty = everything(empty_database_url)
    application.upgrade("first")
    theirs = everything(empty_database_url)
    application.upgrade()
    full = everything(empty_database_url)
    assert full != theirs
    application.downgrade("first")
    assert everything(empty_database_url) == theirs
    application.upgrade()
    assert everything(empty_database_url) == full
    application.downgrade("base")
    assert everything(empty_database_url) == empty
    for revision in ("+1", "+1", "+1"):
        application.upgrade(revision)
    assert everything(empty_database_url) == full
    for revision in ("-1", "-1", "-1"):
        application.downgrade(revision)
    assert everything(empty_database_url) == empty
    application.upgrade()
    with connect(empty_database_url) as connection:
        kinds = {
            row[0] for row in connection.execute("SELECT typname FROM pg_type WHERE typname = 'job_status'")
        }
    assert kinds == {"job_status"}


def test_the_queue_works_after_down_and_up(empty_database_url: str, tmp_path: Path) -> None:
    """The tables of the second upgrade take a job and hand it out."""
    application = write_application(tmp_path / "app", empty_database_url)
    for _ in range(2):
        application.upgrade()
        application.downgrade("base")
    application.upgrade()
    engine = create_engine(empty_database_url)
    store = Store(engine, name="runner")
    store.check_schema()
    job_id = add_job(engine)
    claimed = store.claim(token=uuid4(), quotas={"default": 1}, kinds=["test"], lease=MINUTE)
    assert [job.id for job in claimed] == [job_id]
    store.close()
    engine.dispose()


@SCHEMAS
def test_a_downgrade_that_would_drop_jobs_is_refused(
    empty_database_url: str, tmp_path: Path, schema: str | None
) -> None:
    """A thousand jobs do not vanish by a downgrade: it says so and changes nothing, unless the revision allows it."""
    create_schema(empty_database_url, schema)
    application = write_application(tmp_path / "app", empty_database_url, schema=schema)
    application.upgrade()
    prefix = "" if schema is None else '"' + schema.replace('"', '""') + '".'
    with connect(empty_database_url) as connection:
        insert = f"INSERT INTO {prefix}jobqueue_jobs (kind) SELECT 'test' FROM generate_series(1, 1000)"
        connection.execute(insert.encode())
    before = everything(empty_database_url)
    with pytest.raises(DBAPIError, match=r"holds jobs(?s:.*)drop_jobs=True"):
        application.downgrade("base")
    assert everything(empty_database_url) == before
    allowed = write_application(tmp_path / "allowed", empty_database_url, schema=schema, drop_jobs=True)
    allowed.downgrade("first")
    with connect(empty_database_url) as connection:
        assert connection.execute("SELECT to_regclass(%s)", [f"{prefix}jobqueue_jobs"]).fetchall() == [
            (None,)
        ]


def test_the_schema_changes_nothing_but_the_place(
    server: PostgresServer, empty_database_url: str, tmp_path: Path
) -> None:
    """The table in a schema of its own is the table without one."""
    create_schema(empty_database_url, "jobs")
    application: Application = write_application(tmp_path / "app", empty_database_url, schema="jobs")
    application.upgrade()
    with fresh_database(server) as url:
        write_application(tmp_path / "other", url).upgrade()
        assert job_table(empty_database_url, "jobs") == job_table(url)
