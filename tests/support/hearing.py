"""Somebody who listens for new jobs, and runners that say they wait: what the trigger of the job table is asked about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import create_engine

from sa_jobqueue.queries.schema import channel
from sa_jobqueue.testing.server import connect
from tests.support.waiting import PATIENCE

_END = "the end"


@dataclass(frozen=True, slots=True)
class Listener:
    """Hears what is notified in the channel of the tables that it was made for."""

    connection: psycopg.Connection[Any]
    channel: str

    def heard(self) -> list[str]:
        """The payloads since the last call. Asked behind the commits that it is about, for notifications keep their order."""
        self.connection.execute("SELECT pg_notify(%s, %s)", [self.channel, _END])
        found: list[str] = []
        for notification in self.connection.notifies(timeout=PATIENCE):
            if notification.payload == _END:
                return found
            found.append(notification.payload)
        raise AssertionError(f"{_END!r} has not been heard, but {found}")


@contextmanager
def listening(url: str) -> Iterator[Listener]:
    """A listener on a connection of its own."""
    engine = create_engine(url)
    with engine.connect() as asking:
        name = asking.execute(channel()).scalar_one()
    engine.dispose()
    with connect(url) as connection:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(name)))
        yield Listener(connection, name)


def say_waiting(url: str, *, seconds: float = 600, runner: str = "runner-9", place: str = "") -> None:
    """A runner waits, past every statement of the library; negative seconds are those since when it does not any more."""
    with connect(url) as connection:
        connection.execute(
            f"INSERT INTO {place}jobqueue_idle VALUES (%s, clock_timestamp() + make_interval(secs => %s))"
            " ON CONFLICT (runner_id) DO UPDATE SET waiting_until = excluded.waiting_until".encode(),
            [runner, seconds],
        )
