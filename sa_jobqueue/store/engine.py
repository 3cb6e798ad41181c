"""The runner's own connections: how they are made, and how they read what the server sends.

Nothing here knows statements or jobs beyond their payload.
"""

from __future__ import annotations

from json import JSONDecoder
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from sa_jobqueue.errors import PayloadError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

_DECODE = JSONDecoder().raw_decode


def runner_engine(url: URL, runner_id: str) -> Engine:
    """Connections for the loops alone: no pool, for each loop keeps one for as long as it lives."""
    arguments: dict[str, Any] = {
        "application_name": f"sa_jobqueue {runner_id}"[:63],
        # A network that swallows packets must not look like a patient server.
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20000,
    }
    return create_engine(
        url,
        poolclass=NullPool,
        json_deserializer=_read_jsonb,
        connect_args={k: v for k, v in arguments.items() if k not in url.query},
    )


def _read_jsonb(text: bytes) -> Any:
    """A payload as the server writes it: json.loads would first guess the encoding and look for space around it.

    Somebody else's SQL may have stored what Python can't read, an integer of 5,000 digits for example. Raising here would
    cost every job of the same claim an attempt, so that one job gets the error in the place of its payload.
    """
    try:
        return _DECODE(text.decode())[0]
    except (ValueError, RecursionError) as error:
        return PayloadError(f"the stored payload can't be read: {error}")
