"""A private PostgreSQL cluster in a temporary folder, started from a folder of programs.

PostgreSQL refuses to run as root: then `initdb` and `postgres` run as the user nobody, without groups.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import URL

from sa_jobqueue.testing import _watchdog
from sa_jobqueue.testing._account import current_account, parent_folder, reachable
from sa_jobqueue.testing._binaries import Binaries
from sa_jobqueue.testing.server import PostgresServer, PostgresUnavailableError, StopMode, read_version

_INITDB = ("--no-sync", "--no-instructions", "--locale=C", "-E", "UTF8", "-U", "postgres")
# Whoever reaches the socket is let in, and only its owner and root do. A port is open to every user of the machine,
# and a superuser of the database can run programs: there a password is asked for.
_ACCESS = ("--auth-local=trust", "--auth-host=scram-sha-256")
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_START_PATIENCE = 60.0


class Cluster(PostgresServer):
    """A server of our own; `settings` are PostgreSQL's, by name. It commits durably unless told `fsync=off`.

    It ends with this process, however this process ends.
    """

    def __init__(self, binaries: Binaries, *, settings: Mapping[str, str], tcp: bool = False) -> None:
        self.version = binaries.order[0]
        self.description = str(binaries)
        self.bin_folder = binaries.folder
        self._settings = {"max_prepared_transactions": "20", **settings}
        self._password = secrets.token_urlsafe(12)
        self._port = _free_port() if tcp else 5432
        self._tcp = tcp
        self._account = current_account()
        self._folder: Path | None = None
        self._binaries = binaries
        self._programs = binaries.folder
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._server is not None:
            return
        try:
            if self._folder is None:
                self._create()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def halt(self, mode: StopMode = "fast") -> None:
        if self._server is None:
            return
        self._server.send_signal(_SIGNALS[mode])
        try:
            self._server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None

    def stop(self) -> None:
        self.halt("immediate")
        if self._watchdog is not None:
            try:
                self._watchdog.communicate(timeout=20)  # ends its input: it removes the folder and exits
            except subprocess.TimeoutExpired:
                self._watchdog.kill()
                self._watchdog.wait()
            self._watchdog = None
        if self._folder is not None:
            _watchdog.remove_server(self._folder)  # nothing to do unless somebody killed the watchdog
        self._folder = self.log_path = None

    def url(self, database: str = "postgres", driver: str = "psycopg", *, tcp: bool = False) -> str:
        if self._folder is None:
            raise PostgresUnavailableError(
                "This server has no address: it is not started. Call start() first."
            )
        if tcp and not self._tcp:
            raise PostgresUnavailableError(
                "This server listens on its socket only: ask for start_postgres(tcp=True)."
            )
        url = URL.create(
            f"postgresql+{driver}",
            username="postgres",
            password=self._password if tcp else None,
            host="127.0.0.1" if tcp else None,
            port=self._port if tcp else None,
            database=database,
            query={} if tcp else {"host": str(self._folder / "run"), "port": str(self._port)},
        )
        return url.render_as_string(hide_password=False)

    def _create(self) -> None:
        parent = parent_folder(self._account)
        _watchdog.sweep(parent)
        folder = self._folder = Path(tempfile.mkdtemp(prefix=_watchdog.PREFIX, dir=parent))
        _watchdog.record(folder, "owner", os.getpid())
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", _watchdog.__file__, folder, str(os.getpid())],
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # Ctrl-C ends us, and then the watchdog does its work
        )
        self.log_path = folder / "postgres.log"
        for name in ("data", "run"):
            (folder / name).mkdir(mode=0o700)
            if self._account.user is not None and self._account.group is not None:
                os.chown(folder / name, self._account.user, self._account.group)
        if self._account.user is not None:
            folder.chmod(0o711)
            self._programs = reachable(self._binaries, folder / "programs", self._account)
        self._run("initdb", "-D", str(folder / "data"), *_INITDB, *_ACCESS).wait()
        if not (folder / "data" / "PG_VERSION").exists():
            raise self._failure("initdb failed")

    def _launch(self) -> None:
        assert self._folder is not None
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": str(self._port),
            "unix_socket_directories": str(self._folder / "run"),
            "unix_socket_permissions": "0700",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._server = self._run("postgres", "-D", str(self._folder / "data"), *options)
        deadline = time.monotonic() + _START_PATIENCE
        while True:
            try:
                read_version(self.url())
                break
            except psycopg.OperationalError as error:
                if self._server.poll() is not None:
                    raise self._failure(
                        f"{self.description} ended with code {self._server.returncode}"
                    ) from None
                if time.monotonic() > deadline:
                    raise self._failure(
                        f"{self.description} let nobody in for {_START_PATIENCE:.0f} s"
                    ) from error
                time.sleep(0.02)
        if self._tcp:
            with self._connect("postgres") as connection:
                connection.execute(
                    sql.SQL("ALTER ROLE postgres PASSWORD {}").format(sql.Literal(self._password))
                )

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        assert self._folder is not None
        assert self.log_path is not None
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        command = [str(self._programs / program), *arguments]
        with self.log_path.open("ab") as log:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env={**environment, "LC_ALL": "C"},
                    start_new_session=True,  # Ctrl-C in a terminal must not reach it
                    user=self._account.user,
                    group=self._account.group,
                    extra_groups=self._account.extra_groups,
                )
            except OSError as error:
                raise self._failure(f"{command[0]} could not be started: {error}") from error
        _watchdog.record(self._folder, "server", process.pid)
        return process

    def _failure(self, what: str) -> PostgresUnavailableError:
        lines = self.log_path.read_text(errors="replace").splitlines()[-15:] if self.log_path else []
        return PostgresUnavailableError(
            "\n".join([f"{what}. The end of its output:", *(f"  {line}" for line in lines)])
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
