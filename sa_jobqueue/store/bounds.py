"""How long a transaction of the caller's may take, when its constraints speak, and its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.queries.session import bounded, clock, constraints_now

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


def bound(connection: Connection, *, statement: str, lock: str) -> None:
    """From here to the end of the transaction no statement and no wait for a lock takes longer; texts such as "60s"."""
    connection.execute(bounded(), {"statement": statement, "lock": lock})


def check_at_once(connection: Connection) -> None:
    """From here to the end of the transaction a deferred constraint refuses a statement, not the commit."""
    connection.execute(constraints_now())


def now(connection: Connection) -> datetime:
    """The database's time."""
    time: datetime = connection.execute(clock()).scalar_one()
    return time
