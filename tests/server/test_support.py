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
from tests.support.databases import fail_on_connections, fresh_database
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
            fail_on_connections(url)


def test_a_thread_left_over_fails_the_test(tmp_path: Path) -> None:
    """A thread that lives on works on the data of the next test."""
    body = (
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
        "@pytest.mark.needs('pgbouncer')\ndef test_pool(): ...\n",
        "-p",
        "tests.support.needs",
        ci="true",
    )
    assert "MISSING PART: pgbouncer" in said
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
