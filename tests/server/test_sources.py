"""Where the server comes from: the order, what forces another one, and what a machine without any is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from sa_jobqueue.testing import PostgresServer, PostgresUnavailableError, find_postgres, start_postgres
from sa_jobqueue.testing import _binaries as binaries_module
from sa_jobqueue.testing import postgres as postgres_module
from sa_jobqueue.testing._binaries import Binaries, local_binaries

BOTH_VARIABLES = ("SA_JOBQUEUE_TEST_DATABASE_URL", "SA_JOBQUEUE_TEST_POSTGRES")


@pytest.fixture(autouse=True)
def no_choice_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have chosen a server; these tests choose themselves."""
    for name in BOTH_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No programs, no package, no Docker."""
    monkeypatch.setattr(postgres_module, "local_binaries", list)
    monkeypatch.setattr(postgres_module, "wheel_binaries", list)
    monkeypatch.setattr(postgres_module, "docker_trouble", lambda: "Docker does not answer: no such file")


def fake(folder: Path, version: str) -> Path:
    """A folder of programs that say they are this version."""
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version} (by hand)'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.needs("wheel")
def test_the_variable_forces_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI runs the package even where the machine has PostgreSQL; a choice in code goes before the variable."""
    monkeypatch.setenv("SA_JOBQUEUE_TEST_POSTGRES", "wheel")
    assert find_postgres().kind == "wheel"
    monkeypatch.setenv("SA_JOBQUEUE_TEST_POSTGRES", "docker")
    assert find_postgres("wheel").kind == "wheel"


@pytest.mark.needs("local")
def test_programs_of_the_machine_go_before_the_package() -> None:
    """A developer's tests run on the PostgreSQL that the machine has."""
    assert find_postgres().kind == "local"


def test_the_highest_version_is_taken_and_old_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with several versions runs the newest; what is below 14 lacks what our statements use."""
    folders = [fake(tmp_path / version, version) for version in ("9.6.24", "14.11", "16.3", "13.9")]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "postgres").symlink_to(folders[2] / "postgres")
    monkeypatch.setattr(binaries_module, "_PLACES", ())
    monkeypatch.setenv("PATH", ":".join(map(str, [tmp_path / "linked", *folders])))
    assert [each.version for each in local_binaries()] == ["16.3", "14.11", "13.9", "9.6.24"]
    assert find_postgres("local").binaries == Binaries(folders[2], "16.3", "binaries")
    monkeypatch.setenv("PATH", str(folders[3]))
    with pytest.raises(PostgresUnavailableError, match=r"PostgreSQL 13\.9 .* is too old"):
        find_postgres("local")


@pytest.mark.usefixtures("bare_machine")
def test_a_bare_machine_is_told_what_helps() -> None:
    """Whoever meets this error can mend it without reading our code."""
    with pytest.raises(PostgresUnavailableError) as caught:
        find_postgres()
    message = str(caught.value)
    for cure in ("apt-get install postgresql", "sa-jobqueue[embedded]", "start Docker", BOTH_VARIABLES[0]):
        assert cure in message
    assert "Docker does not answer: no such file" in message


@pytest.mark.usefixtures("bare_machine")
def test_a_forced_source_is_never_replaced(monkeypatch: pytest.MonkeyPatch, server: PostgresServer) -> None:
    """A run that asked for Docker must not pass on something else."""
    monkeypatch.setenv("SA_JOBQUEUE_TEST_POSTGRES", "docker")
    monkeypatch.setenv("SA_JOBQUEUE_TEST_DATABASE_URL", server.url())
    with pytest.raises(PostgresUnavailableError, match="unset SA_JOBQUEUE_TEST_POSTGRES"):
        find_postgres()


def test_an_unknown_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in the variable must not choose something silently."""
    monkeypatch.setenv("SA_JOBQUEUE_TEST_POSTGRES", "podman")
    with pytest.raises(PostgresUnavailableError, match="podman names no source"):
        find_postgres()


def test_a_server_given_by_url_goes_first_and_is_not_ours_to_stop(
    monkeypatch: pytest.MonkeyPatch, server: PostgresServer
) -> None:
    """Databases come and go on a server that somebody named, and it runs on afterwards."""
    monkeypatch.setenv("SA_JOBQUEUE_TEST_DATABASE_URL", server.url())
    with start_postgres() as named:
        assert (named.version, find_postgres().kind) == (server.version, "url")
        named.create_database("sajq_test_by_url")
        named.drop_database("sajq_test_by_url")
        with pytest.raises(PostgresUnavailableError, match="not ours to stop"):
            named.restart()
    server.create_database("sajq_test_still_there")
    server.drop_database("sajq_test_still_there")


def test_the_applications_own_database_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """DATABASE_URL often names a production server; tests create and drop databases."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://production.invalid/app")
    assert find_postgres().kind != "url"


def test_a_password_in_the_url_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The description goes to logs and to pytest's header."""
    monkeypatch.setenv("SA_JOBQUEUE_TEST_DATABASE_URL", "postgresql+psycopg://me:secret@db.invalid/postgres")
    assert "secret" not in find_postgres().description
