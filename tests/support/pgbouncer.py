"""A real PgBouncer in transaction mode, in front of the server of the tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from sqlalchemy import URL, make_url

from sa_jobqueue.testing._account import current_account, parent_folder
from sa_jobqueue.testing.server import connect, wait_until_ready
from tests.support.waiting import PATIENCE

#: So few sessions that clients must share them all the time.
POOL_SIZE = 2


class PgBouncer:
    """`url` leads through it to a database."""

    def __init__(self, url: URL) -> None:
        self.url = url

    def for_asyncpg(self) -> URL:
        """The same for the driver asyncpg."""
        return self.url.set(drivername="postgresql+asyncpg", query={"ssl": "disable"})

    def ask_every_session(self, query: LiteralString) -> list[Any]:
        """The rows of a query from each of the sessions that it keeps on the server."""
        with ExitStack() as stack:
            # A transaction holds a session, so that as many at once have them all.
            held = [stack.enter_context(connect(self.url.render_as_string())) for _ in range(POOL_SIZE)]
            for connection in held:
                connection.prepare_threshold = None
                connection.execute("BEGIN")
            pids = {row[0] for each in held for row in each.execute("SELECT pg_backend_pid()")}
            assert len(pids) == POOL_SIZE
            return [row for each in held for row in each.execute(query).fetchall()]


@contextmanager
def pgbouncer(database_url: str, **settings: str | int) -> Iterator[PgBouncer]:
    """One in front of the database, for the time of the block. `settings` are PgBouncer's own.

    PgBouncer, too, refuses to run as root: then it runs as whoever runs the server.
    """
    program = shutil.which("pgbouncer")
    assert program is not None
    account = current_account()
    with tempfile.TemporaryDirectory(prefix="sajq-", dir=parent_folder(account)) as name:
        folder, port = Path(name), _free_port()
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(_configuration(database_url, port, settings))
        (folder / "users").write_text(f'"{make_url(database_url).username}" ""\n')
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, configuration],
                cwd="/",
                stdout=log,
                stderr=log,
                user=account.user,
                group=account.group,
                extra_groups=account.extra_groups,
            )
        url = make_url(database_url).set(host="127.0.0.1", port=port, query={"sslmode": "disable"})
        try:
            try:
                wait_until_ready(url.render_as_string(hide_password=False), patience=PATIENCE)
            except psycopg.OperationalError as error:
                raise AssertionError(f"no PgBouncer: {error}; {(folder / 'log').read_text()}") from None
            yield PgBouncer(url)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _configuration(database_url: str, port: int, settings: dict[str, str | int]) -> str:
    with connect(database_url) as connection:
        where = connection.info
        host, number, database, user = where.host, where.port, where.dbname, where.user
    values = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "auth_file": "users",
        "admin_users": user,
        "pool_mode": "transaction",
        "default_pool_size": POOL_SIZE,
        "max_client_conn": 200,
    }
    # With `any` everybody gets in, as the user that stands here.
    lines = [f"{database} = host={host} port={number} user={user}"]
    return "\n".join(
        [
            "[databases]",
            *lines,
            "[pgbouncer]",
            *(f"{key} = {value}" for key, value in {**values, **settings}.items()),
        ]
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port
