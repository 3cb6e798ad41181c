"""The way from a command to the database: its options, one connection, short transactions, and trouble as messages."""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, OperationalError

from sa_jobqueue.cli.exits import CommandError, SchemaError, TroubleError, UnreachableError
from sa_jobqueue.cli.options import option
from sa_jobqueue.cli.output import safe_lines
from sa_jobqueue.database import normalise_url, shown_url
from sa_jobqueue.errors import ConfigurationError, SchemaVersionError
from sa_jobqueue.failures import headline
from sa_jobqueue.models import configure
from sa_jobqueue.queries.session import bounded, clock
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.own_connection import PREPARE_THRESHOLD
from sa_jobqueue.store.schema import installed_version, require
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from sqlalchemy import URL, Connection

URL_VARIABLES = ("SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")
#: Bounds of every statement of an operator's command; a wait for a locked row ends sooner.
STATEMENT_TIMEOUT, LOCK_TIMEOUT = "60s", "5s"
#: How long a server may keep silent, which ought to have ended the statement before.
DEADLINE = timedelta(minutes=2)

_ADVICE = {
    "42501": "this role may not do that: it needs USAGE on the schema, SELECT to read, SELECT and UPDATE for the verbs, "
    "SELECT, UPDATE and DELETE to prune",
    "57014": f"the statement was cancelled, as one that takes longer than {STATEMENT_TIMEOUT}: ask for less, "
    "by --status, --queue or --limit",
    "55P03": f"a row stayed locked by another transaction for {LOCK_TIMEOUT}: try again later, or look for a session "
    "that is idle in transaction",
    "25006": "the server takes no writes: connect to the primary",
}


def database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--database-url` and `--schema`, as every command has them."""
    url = option(
        "--database-url",
        envvar=URL_VARIABLES,
        metavar="URL",
        help="The database, as postgresql://user:password@host/name.",
    )
    schema = option("--schema", help="The schema of the queue's tables. Default: found through search_path.")
    decorated: Callable[..., Any] = url(schema(command))
    return decorated


def with_database(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the database, and the database they lead to, in the command's parameter `database`."""

    @functools.wraps(command)
    def call(*arguments: Any, database_url: str | None, schema: str | None, **options: Any) -> Any:
        with Database(database_url, schema).in_use() as database:
            return command(*arguments, database=database, **options)

    return database_options(call)


def database_url(given: str | None) -> URL:
    """The first that isn't empty: the option, then the variables. Raises ConfigurationError without any."""
    for text in (given, *map(os.environ.get, URL_VARIABLES)):
        if text and text.strip():
            return normalise_url(text)
    raise ConfigurationError(
        f"no database URL: set {' or '.join(URL_VARIABLES)}, or give --database-url "
        "postgresql://user:password@host/name"
    )


def unreachable(error: OperationalError, url: URL) -> UnreachableError:
    """What somebody is told whose database doesn't answer."""
    return UnreachableError(f"can't reach the database at {shown_url(url)}: {headline(error.orig or error)}")


class Database:
    """The database of one command: one connection, opened when it is needed, and a short transaction per step."""

    def __init__(self, given_url: str | None, schema: str | None) -> None:
        try:
            self._url = database_url(given_url)
            if schema:
                configure(schema=schema)
            # A statement is seldom run twice here, and a pooler may be in between.
            url = self._url.update_query_dict({PREPARE_THRESHOLD: "none"})
            engine = runner_engine(url, "operator", deadline=DEADLINE)
            self._engine = engine.execution_options(isolation_level="READ COMMITTED")
        except (ConfigurationError, ValueError) as error:
            raise CommandError(str(error)) from error
        self._connection: Connection | None = None

    @contextmanager
    def in_use(self) -> Iterator[Database]:
        """Within it the database's errors become errors of the command; at its end the connection is closed."""
        try:
            yield self
        except SchemaVersionError as error:
            raise SchemaError(str(error)) from error
        except DBAPIError as error:
            if isinstance(error, OperationalError) and not refused(error):
                raise unreachable(error, self._url) from error
            raise _told(error) from error
        finally:
            if self._connection is not None:
                self._connection.close()
            self._engine.dispose()

    @contextmanager
    def transaction(self, *, lock_timeout: str | None = None) -> Iterator[Connection]:
        """One transaction, committed at the end, in which neither a statement nor a wait for a lock takes for ever.

        The first one connects, and checks that the tables are there.
        """
        connection = self._connection
        if connection is None:
            connection = self._connection = self._engine.connect()
            with self.transaction():
                require(installed_version(connection))
        with connection.begin():
            connection.execute(
                bounded(), {"statement": STATEMENT_TIMEOUT, "lock": lock_timeout or LOCK_TIMEOUT}
            )
            yield connection

    def now(self) -> datetime:
        """The database's time."""
        with self.transaction() as connection:
            moment: datetime = connection.execute(clock()).scalar_one()
        return moment


def _told(error: DBAPIError) -> TroubleError:
    cause = error.orig or error
    advice = _ADVICE.get(getattr(cause, "sqlstate", None) or "")
    # What a trigger raises is somebody else's text.
    return TroubleError("\n".join([*safe_lines(headline(cause)), *([advice] if advice else [])]))
