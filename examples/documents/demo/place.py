"""The database of the demo: a private server that is gone afterwards, or an empty database that somebody names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import OperationalError

import sa_jobqueue
from examples.documents.demo.runner import ROOT
from examples.documents.demo.trouble import DemoError
from sa_jobqueue.database import normalise_url, shown_url
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.testing import PostgresUnavailableError, start_postgres

MIGRATE = ("alembic", "-c", "examples/documents/alembic.ini", "upgrade", "head")
#: The variables that tell the applications and the runner where the database is.
_VARIABLES = ("DOCUMENTS_DATABASE_URL", "SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")


@dataclass(frozen=True, slots=True)
class Place:
    """A database with nothing in it; `url` may hold a password, `description` doesn't."""

    url: str
    description: str

    @property
    def environment(self) -> Mapping[str, str]:
        return dict.fromkeys(_VARIABLES, self.url)


@contextmanager
def private_place(name: str = "documents") -> Iterator[Place]:
    """A database on a server that is started now and removed at the end. Raises DemoError when there is no server."""
    try:
        server = start_postgres()
    except PostgresUnavailableError as error:
        raise DemoError(str(error)) from None
    with server:
        # The server may also be one that the environment names: then nothing of ours may stay, nor be overwritten.
        database = f"{name}_{os.getpid()}"
        server.create_database(database)
        try:
            yield Place(server.url(database), f"{server.description}, private")
        finally:
            server.drop_database(database)


def given_place(text: str) -> Place:
    """The database of that URL, in which everything stays at the end. Raises DemoError when it can't be used."""
    try:
        url = normalise_url(text)
    except ConfigurationError as error:
        raise DemoError(f"--database-url: {error}") from None
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
    except OperationalError as error:
        raise DemoError(f"can't reach {shown_url(url)}: {str(error.orig).splitlines()[0]}") from None
    finally:
        engine.dispose()
    if tables:
        raise DemoError(
            f"the database {shown_url(url)} is not empty ({', '.join(sorted(tables))}): the demo counts everything, and "
            f"wants one of its own.\nMake one: createdb documents_demo. If {url.database} is an earlier demo's: "
            f"dropdb {url.database} && createdb {url.database}"
        )
    return Place(url.render_as_string(hide_password=False), shown_url(url))


def migrate(place: Place, command: Sequence[str] = MIGRATE) -> None:
    """`alembic upgrade head`, as a deployment runs it. Raises DemoError with its output."""
    if sa_jobqueue.metadata.schema is not None:
        raise DemoError(
            "unset SA_JOBQUEUE_SCHEMA: this application's migrations put the queue beside its own tables"
        )
    answer = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, **place.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise DemoError(f"{' '.join(command)} failed:\n{answer.stdout}")
