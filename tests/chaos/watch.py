"""The driver's own connection: never ended by a fault of ours, and made anew after each outage."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from sqlalchemy import make_url

from tests.support.waiting import wait_until

NAME = "chaos driver"


def connect(url: str) -> psycopg.Connection[Any]:
    """Autocommit, and free to write while the database is read-only."""
    parts = make_url(url).translate_connect_args(username="user", database="dbname")
    options = "-c default_transaction_read_only=off"
    return psycopg.connect(
        **parts, application_name=NAME, options=options, connect_timeout=5, autocommit=True
    )


class Watch:
    """Asks, and asks again on another connection when the database was away; from any thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """The answer, however long the database is away. What is sent may have been done before, unheard."""
        answer = wait_until(lambda: self._try(query, parameters), what=query)
        assert answer is not None
        return answer[0]

    def value(self, query: str, parameters: Mapping[str, Any] | None = None) -> Any:
        return self.rows(query, parameters)[0][0]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _try(self, query: str, parameters: Mapping[str, Any] | None) -> tuple[Sequence[Any]] | None:
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = connect(self._url)
                cursor = self._connection.execute(query.encode(), parameters)
                return (cursor.fetchall() if cursor.description else [],)
            except psycopg.OperationalError:
                if self._connection is not None:
                    self._connection.close()
                return None
