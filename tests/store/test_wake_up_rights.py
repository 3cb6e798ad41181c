"""The trigger runs with its owner's rights: what producers and runners need, and that nobody can make it his tool."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import enqueue, enqueue_many
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support.databases import fresh_database, new_name
from tests.support.hearing import listening, say_waiting

INSERT = "INSERT INTO jobqueue_jobs (kind) VALUES ('test')"
SECOND = timedelta(seconds=1)
# Everything that the function uses, under the same names, in a schema that comes first.
TRAPS = """
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.sprung(anyelement) RETURNS anyelement LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'a trap has sprung as %', current_user; END $$;
    CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT evil.sprung(pg_catalog.now())';
    CREATE FUNCTION evil.current_setting(text, bool) RETURNS text LANGUAGE sql AS $$ SELECT evil.sprung($1) $$;
    CREATE FUNCTION evil.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT evil.sprung(1::float8)';
    CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.sprung($1); END $$;
    CREATE FUNCTION evil.concat(text, oid) RETURNS text LANGUAGE sql AS 'SELECT evil.sprung($1)';
    CREATE FUNCTION evil.texts(text, text) RETURNS bool LANGUAGE sql AS 'SELECT evil.sprung(true)';
    CREATE FUNCTION evil.times(timestamptz, timestamptz) RETURNS bool LANGUAGE sql AS 'SELECT evil.sprung(true)';
    CREATE FUNCTION evil.numbers(float8, float8) RETURNS bool LANGUAGE sql AS 'SELECT evil.sprung(true)';
    CREATE FUNCTION evil.mixed(float8, numeric) RETURNS bool LANGUAGE sql AS 'SELECT evil.sprung(true)';
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.texts);
    CREATE OPERATOR evil.> (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.times);
    CREATE OPERATOR evil.< (LEFTARG = float8, RIGHTARG = float8, FUNCTION = evil.numbers);
    CREATE OPERATOR evil.< (LEFTARG = float8, RIGHTARG = numeric, FUNCTION = evil.mixed);
    CREATE DOMAIN evil.text AS pg_catalog.text CHECK (value = 'no value passes');
    CREATE TABLE evil.jobqueue_idle (runner_id pg_catalog.text, waiting_until timestamptz);
    GRANT USAGE ON SCHEMA evil TO PUBLIC;
    GRANT ALL ON ALL TABLES IN SCHEMA evil TO PUBLIC;
"""


@pytest.fixture
def url(server: PostgresServer, template_database: str) -> Iterator[str]:
    """A database of its own: what is done to it here is more than tables."""
    with fresh_database(server, template=template_database) as url:
        yield url


@pytest.fixture
def role(url: str) -> Iterator[str]:
    """A role that may use the schema and has no other right."""
    name = new_name()
    with connect(url) as connection:
        connection.execute(f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA public TO {name}".encode())
    yield name
    with connect(url) as connection:
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@pytest.fixture
def theirs(url: str, role: str) -> Iterator[Engine]:
    """An engine whose connections play that role."""
    engine = create_engine(url, connect_args={"options": f"-c role={role}"})
    yield engine
    engine.dispose()


def grant(url: str, role: str, *rights: str) -> None:
    with connect(url) as connection:
        for right in rights:
            connection.execute(f"GRANT {right} TO {role}".encode())


def test_a_producer_needs_the_job_table_alone(url: str, role: str, theirs: Engine) -> None:
    """SELECT and INSERT, as before: runners are woken by those who may not read who they are."""
    grant(url, role, "SELECT, INSERT ON jobqueue_jobs")
    say_waiting(url)
    with listening(url) as listener:
        with theirs.begin() as connection:
            enqueue_many(connection, [enqueue("test")])
        assert listener.heard() == [""]
        with theirs.begin() as connection, pytest.raises(DBAPIError, match="permission denied for table"):
            connection.exec_driver_sql("SELECT FROM jobqueue_idle")
        with theirs.begin() as connection, pytest.raises(DBAPIError, match="permission denied for function"):
            connection.exec_driver_sql("SELECT jobqueue_wake()")


def test_nobody_else_hangs_the_function_on_his_table(url: str, role: str, theirs: Engine) -> None:
    """It would notify for every row of somebody's, with its owner's rights: only who may execute it can use it."""
    grant(url, role, "CREATE ON SCHEMA public")
    with theirs.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (id int)")
        with pytest.raises(DBAPIError, match="permission denied for function"):
            connection.exec_driver_sql(
                "CREATE TRIGGER mine AFTER INSERT ON mine EXECUTE FUNCTION jobqueue_wake()"
            )


def test_a_runner_needs_the_idle_table(url: str, role: str, theirs: Engine) -> None:
    """Without it the server says so; with SELECT, INSERT, UPDATE and DELETE on it a runner waits."""
    grant(url, role, "SELECT, INSERT, UPDATE, DELETE ON jobqueue_jobs")
    store = Store(theirs, name="runner-1")
    with pytest.raises(DBAPIError) as caught:
        store.wait_for_jobs(queues=["default"], kinds=["test"], wait=SECOND)
    assert getattr(caught.value.orig, "sqlstate", None) == "42501"
    grant(url, role, "SELECT, INSERT, UPDATE, DELETE ON jobqueue_idle")
    assert store.wait_for_jobs(queues=["default"], kinds=["test"], wait=SECOND).others == 0
    store.stop_waiting()
    store.close()


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize("policy", ["when-idle", "always", "off"])
def test_no_search_path_leads_it_astray(
    url: str, role: str, theirs: Engine, policy: str, *, waiting: bool
) -> None:
    """Whoever inserts chooses the search_path, pg_catalog last: no look-alike runs with the owner's rights."""
    grant(url, role, "SELECT, INSERT ON jobqueue_jobs")
    if waiting:
        say_waiting(url)
    with connect(url) as connection:
        connection.execute(TRAPS.encode())
    with listening(url) as listener:
        with theirs.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL sa_jobqueue.notify = '{policy}'")
            connection.exec_driver_sql("SET LOCAL search_path = evil, public, pg_temp, pg_catalog")
            connection.exec_driver_sql(INSERT)
        told = policy == "always" or (policy == "when-idle" and waiting)
        assert listener.heard() == ([""] if told else [])


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE jobqueue_jobs OWNER TO {role}; ALTER FUNCTION jobqueue_wake() OWNER TO {role}",
        "DROP TABLE jobqueue_idle",
        "ALTER SCHEMA public RENAME TO elsewhere; SET search_path = elsewhere",
    ],
    ids=["the owner has no right", "no table", "another name"],
)
def test_it_costs_no_job(url: str, role: str, change: str) -> None:
    """What somebody does to the queue's tables may cost the hint: jobs come in as before."""
    say_waiting(url)
    with connect(url) as connection:
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {role}".encode())
        connection.execute(change.format(role=role).encode())
        connection.execute(INSERT.encode())
        assert connection.execute("SELECT count(*) FROM jobqueue_jobs").fetchall() == [(1,)]


def test_a_dump_brings_it_back(server: PostgresServer, url: str) -> None:
    """A dump and its restore make the same: the trigger finds its table and says the channel that listeners ask for."""
    bundled = None if server.bin_folder is None else server.bin_folder / "pg_dump"
    pg_dump = str(bundled) if bundled is not None and bundled.exists() else shutil.which("pg_dump")
    if pg_dump is None:
        pytest.skip("there is no program pg_dump with the server or on PATH")
    with connect(url) as connection:
        connection.execute(INSERT.encode())
    say_waiting(url, seconds=-60)
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    # As INSERTs, so that no psql is needed; lines that begin with a backslash are for that alone.
    dumped = subprocess.run([pg_dump, "--inserts", address], text=True, check=True, capture_output=True)
    dump = "\n".join(line for line in dumped.stdout.splitlines() if not line.startswith("\\"))
    with fresh_database(server) as restored:
        with connect(restored) as connection:
            connection.execute(dump.encode())
        say_waiting(restored)
        with listening(restored) as listener:
            with connect(restored) as connection:
                connection.execute(INSERT.encode())
                assert connection.execute("SELECT count(*) FROM jobqueue_jobs").fetchall() == [(2,)]
            assert listener.heard() == [""]
