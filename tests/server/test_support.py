"""The tests' own tools: a check that never fails, or a part that is missing in silence, would be worse than none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect
from tests.support import needs
from tests.support.databases import fail_on_connections, fail_on_others, fresh_database
from tests.support.reuse import Databases
from tests.support.steps import PATIENT, WITHOUT_SQL
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(folder: Path, body: str, *arguments: str, ci: str = "") -> str:
    """What pytest says about one test module, with our plug-ins."""
    (folder / "test_inner.py").write_text(f"import threading\nimport pytest\n\n{body}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs(part): a part\n")
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    return answer.stdout


def test_what_the_second_run_leaves_out_is_there() -> None:
    """A name that leads nowhere would leave nothing out."""
    assert all((ROOT / part).exists() for part in (*WITHOUT_SQL, PATIENT))


def test_the_engine_has_the_newest_schema(engine: Engine) -> None:
    """Tests start from what our own migrations make."""
    assert "jobqueue_jobs" in inspect(engine).get_table_names()


def test_an_empty_database_is_empty(empty_database_url: str) -> None:
    """Tests of the migrations themselves start from nothing."""
    with connect(empty_database_url) as connection:
        query = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        assert connection.execute(query).fetchone() == (0,)


def test_a_connection_left_over_fails_the_test(server: PostgresServer) -> None:
    """A forgotten connection holds locks and snapshots; its last query tells whose it is."""
    with fresh_database(server) as url, connect(url) as connection:
        connection.execute("SELECT 'forgotten'")
        with pytest.raises(pytest.fail.Exception, match="SELECT 'forgotten'"):
            fail_on_connections(url, timeout=0)


def test_a_test_sees_nothing_of_the_one_before(databases: Databases) -> None:
    """The next one gets the same database without the rows, and numbers begin anew."""
    insert = "INSERT INTO jobqueue_jobs (kind) VALUES ('test') RETURNING id"
    urls = []
    for _ in range(2):
        with databases.one(fail_on_others) as url, connect(url) as connection:
            urls.append(url)
            assert connection.execute(insert).fetchall() == [(1,)]
    assert urls[0] == urls[1]


@pytest.mark.parametrize(
    "trace",
    [
        "CREATE TABLE mine ()",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE mine AS ENUM ()",
        "CREATE SCHEMA mine",
        "ALTER TABLE jobqueue_jobs ALTER COLUMN kind SET DEFAULT 'mine'",
        "ALTER TABLE jobqueue_jobs SET (fillfactor = 50)",
        "ALTER TABLE jobqueue_jobs DISABLE ROW LEVEL SECURITY, ENABLE ROW LEVEL SECURITY",
        "CREATE INDEX mine ON jobqueue_jobs (id)",
        "CREATE RULE mine AS ON DELETE TO jobqueue_jobs DO INSTEAD NOTHING",
        "COMMENT ON TABLE jobqueue_jobs IS 'mine'",
        "GRANT SELECT ON jobqueue_jobs TO PUBLIC",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO PUBLIC, CURRENT_USER",
        "INSERT INTO jobqueue_jobs (kind) VALUES ('test'); ANALYZE jobqueue_jobs",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 1', current_database()); END $$",
        "DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO CURRENT_USER', current_database()); END $$",
        "BEGIN; LOCK TABLE jobqueue_jobs; PREPARE TRANSACTION 'mine'",
    ],
)
def test_whoever_leaves_more_than_rows_uses_a_database_up(databases: Databases, trace: str) -> None:
    """Anything else than rows is found, and nobody gets that database again."""
    with databases.one(fail_on_others) as url, connect(url) as connection:
        connection.execute(trace.encode())
    with databases.one(fail_on_others) as another:
        assert another != url


def test_a_thread_left_over_fails_the_test(tmp_path: Path) -> None:
    """A thread that lives on works on the data of the next test."""
    body = (
        "from tests.support import leaks\n"
        "leaks.PATIENCE = 0.1\n"
        "stop = threading.Event()\n"
        "def test_forgets():\n    threading.Thread(target=stop.wait, name='forgotten', daemon=True).start()\n"
    )
    said = run_pytest(tmp_path, body, "-p", "tests.support.leaks")
    assert "threads left over: forgotten" in said
    assert "1 passed, 1 error" in said


def test_a_missing_part_is_named_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the report sees what was not tested."""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = run_pytest(
        tmp_path,
        "@pytest.mark.needs('pgbouncer_prepares')\ndef test_pool(): ...\n",
        "-p",
        "tests.support.needs",
        ci="true",
    )
    assert "MISSING PART: pgbouncer_prepares" in said
    assert "there is no program pgbouncer on PATH; tests not run:\n  test_inner.py::test_pool" in said
    assert "1 skipped" in said


def test_a_part_that_ci_provides_must_be_there(tmp_path: Path) -> None:
    """A run in CI must not get green because an installation failed."""
    body = (
        "from tests.support import needs\nneeds.PROBES['wheel'] = lambda: 'gone'\n"
        "@pytest.mark.needs('wheel')\ndef test_server(): ...\n"
    )
    said = run_pytest(tmp_path, body, "-p", "tests.support.needs", ci="true")
    assert ".ci/run provides wheel, and it is missing: gone" in said
    assert "1 error" in said
    assert "1 skipped" in run_pytest(tmp_path, body, "-p", "tests.support.needs")


def test_parts_of_ci_are_known_parts() -> None:
    """A misspelt part would never be missed."""
    assert needs.PROBES.keys() >= needs.PROVIDED_IN_CI


def test_waiting_ends_with_the_last_answer() -> None:
    """A condition that never holds is a failure that says what was seen."""
    answers = iter([0, 0, 7])
    assert wait_until(lambda: next(answers)) == 7
    with pytest.raises(AssertionError, match=r"not within 0 s: the job is done \(last answer: ''\)"):
        wait_until(str, timeout=0, what="the job is done")
