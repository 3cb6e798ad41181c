"""The runner's and the command line's own connections: how they are made, and how they read what the server sends.

Nothing here knows statements or jobs beyond their payload.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.pool import NullPool

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.payloads import read_stored
from sa_jobqueue.store.driver import connect
from sa_jobqueue.store.own_connection import PREPARE_THRESHOLD

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import URL, Engine

    from sa_jobqueue.store.driver import BoundedConnection

#: What every engine of a runner's is made with. Parameters hold payloads, results and errors of jobs, and what a loop
#: fails with is logged. So do rows, which SQLAlchemy logs at DEBUG, whatever else is hidden: not through this logger.
DISCREET: Mapping[str, Any] = MappingProxyType({"hide_parameters": True, "logging_name": "sa_jobqueue"})
logging.getLogger("sqlalchemy.engine.Engine.sa_jobqueue").addFilter(
    lambda record: record.levelno >= logging.INFO
)

#: How long, in seconds, a connect may take at most.
LONGEST_CONNECT = 10


def runner_engine(url: URL, runner_id: str, *, deadline: timedelta) -> Engine:
    """Connections without a pool, for each loop or command keeps one for as long as it lives.

    No statement keeps a loop for longer than `deadline`: then its connection is closed and the statement fails as after
    a lost answer. To connect may take as long, but no more than 10 s for each address of the server. The URL's query has
    the last word on all settings but the encoding. Raises ConfigurationError when its `prepare_threshold` is neither a
    number nor `none`.
    """
    arguments: dict[str, Any] = {
        "application_name": f"sa_jobqueue {runner_id}"[:63],
        # A network that swallows packets must not look like a patient server.
        "connect_timeout": min(math.ceil(deadline.total_seconds()), LONGEST_CONNECT),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20000,
    }
    engine = create_engine(
        url,
        poolclass=NullPool,
        json_deserializer=_read_jsonb,
        **DISCREET,
        connect_args={
            **{name: value for name, value in arguments.items() if name not in url.query},
            **_prepare_threshold(url),
            # Payloads are read as UTF-8 and errors may hold any character, whatever the database is encoded in.
            "client_encoding": "utf8",
        },
    )

    @event.listens_for(engine, "do_connect")
    def bounded(
        _dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]
    ) -> BoundedConnection:
        return connect(parameters, deadline=deadline)

    return engine


def handlers_arguments(url: URL, runner_id: str, *, prepares: bool) -> dict[str, Any]:
    """The driver's arguments for connections that handlers use. `prepares` is what holds where the URL says nothing of it.

    Raises ConfigurationError as `runner_engine` does.
    """
    arguments: dict[str, Any] = {} if prepares else {PREPARE_THRESHOLD: None}
    if "application_name" not in url.query:
        arguments["application_name"] = f"sa_jobqueue {runner_id}"[:63]
    return {**arguments, **_prepare_threshold(url)}


def _prepare_threshold(url: URL) -> dict[str, int | None]:
    """The driver wants a number where a URL has text."""
    given = url.query.get(PREPARE_THRESHOLD)
    if given is None:
        return {}
    if isinstance(given, str) and given.isdecimal():
        return {PREPARE_THRESHOLD: int(given)}
    if isinstance(given, str) and given.lower() == "none":
        return {PREPARE_THRESHOLD: None}
    raise ConfigurationError(
        f"the database URL says prepare_threshold={given}: write a number of uses after which a statement is prepared, "
        "or none; without it statements are prepared unless a pooler is in between"
    )


def _read_jsonb(text: bytes) -> Any:
    return read_stored(text.decode())
