"""What every PostgreSQL for tests can do, wherever it comes from. How one is found is told in `postgres`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg
from psycopg import sql
from sqlalchemy import make_url

StopMode = Literal["fast", "immediate"]
OLDEST_MAJOR = 14


class PostgresUnavailableError(RuntimeError):
    """There is no usable PostgreSQL for tests; the message says what was tried and what to do."""


class PostgresServer(ABC):
    """A PostgreSQL on which databases may be created and dropped at will.

    A context manager: entering starts it when it does not run yet, leaving stops it and removes everything it left.
    """

    version: int
    """Major version, for example 17. Known once the server has been started."""
    description: str
    """One line for people: version and origin."""
    log_path: Path | None = None
    """The server's log, while it exists on this machine."""
    bin_folder: Path | None = None
    """Where pgbench, pg_dump and the like lie, when the server runs from programs of this machine."""

    @abstractmethod
    def start(self) -> None:
        """Start the server and return when it accepts connections; nothing to do when it runs.

        Raises PostgresUnavailableError with the end of the server's log.
        """

    @abstractmethod
    def halt(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data: an outage that lasts until `start`.

        `fast` lets it write a checkpoint; `immediate` is a crash, from which it recovers at the next start.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the server and remove its data. May be called twice."""

    @abstractmethod
    def url(self, database: str = "postgres", driver: str = "psycopg", *, tcp: bool = False) -> str:
        """The SQLAlchemy URL of a database. With `tcp`, by 127.0.0.1 instead of the Unix socket, for proxies."""

    def restart(self, mode: StopMode = "fast") -> None:
        """Halt and start again, with the same address and data."""
        self.halt(mode)
        self.start()

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create an empty database, or a copy of the template, to which nobody may be connected."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        with self._connect("postgres") as connection:
            connection.execute(statement)

    def drop_database(self, name: str) -> None:
        """Drop the database with its connections and its prepared transactions; nothing to do when there is none."""
        with self._connect("postgres") as connection:
            query = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"
            prepared = [gid for (gid,) in connection.execute(query, (name,))]
            if prepared:
                with self._connect(name) as inside:
                    for gid in prepared:
                        inside.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _connect(self, database: str) -> psycopg.Connection[Any]:
        return connect(self.url(database))


def connect(url: str) -> psycopg.Connection[Any]:
    """A plain autocommit connection to a SQLAlchemy URL."""
    parts = make_url(url)
    words: dict[str, Any] = {
        **parts.translate_connect_args(username="user", database="dbname"),
        **parts.query,
    }
    return psycopg.connect(**{"connect_timeout": 5, **words}, autocommit=True)


def read_version(url: str) -> str:
    """The version that the server itself names, for example "17.4". Refuses what is too old for us."""
    with connect(url) as connection:
        number = connection.info.server_version
    version = f"{number // 10000}.{number % 10000}"
    if number < OLDEST_MAJOR * 10000:
        where = make_url(url).render_as_string(hide_password=True)
        raise PostgresUnavailableError(
            f"PostgreSQL {version} at {where} is too old: {OLDEST_MAJOR} or newer is needed."
        )
    return version


def wait_until_ready(url: str, *, patience: float) -> str:
    """Connect until it works and return the version; the last error is raised when patience (in seconds) is over."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return read_version(url)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
