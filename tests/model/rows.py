"""The rows of the model, and the words in which it is asked and answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

Lock = Literal["row", "key share"]
TERMINAL = ("done", "dead", "cancelled")
#: Where each verb of a settlement may lead.
TARGETS = {
    "complete": ("done",),
    "retry": ("ready", "dead", "cancelled"),
    "snooze": ("ready", "cancelled"),
    "discard": ("dead", "cancelled"),
    "release": ("ready", "cancelled"),
    "abort": ("cancelled",),
}


@dataclass(kw_only=True)
class Job:
    """One row: every column of the table under its name."""

    id: int
    kind: str
    run_at: datetime
    created_at: datetime
    updated_at: datetime
    queue: str = "default"
    payload: Any = field(default_factory=dict)
    payload_version: int = 1
    status: str = "ready"
    priority: int = 5
    expires_at: datetime | None = None
    attempts: int = 0
    returned: int = 0
    max_attempts: int = 5
    lease_token: UUID | None = None
    lease_until: datetime | None = None
    leased_by: str | None = None
    settled_token: UUID | None = None
    cancel_requested_at: datetime | None = None
    idempotency_key: str | None = None
    key_scope: str | None = None
    unique_key: str | None = None
    reason: str | None = None
    result: Any = None
    progress: Any = None
    last_error: str | None = None
    errors: tuple[Any, ...] = ()
    trace_context: Any = None
    finished_at: datetime | None = None

    @property
    def attempt(self) -> int:
        """Returned starts do not count."""
        return self.attempts - self.returned

    @property
    def exhausted(self) -> bool:
        """Exhausted when attempts - returned >= max_attempts."""
        return self.attempt >= self.max_attempts


class Settlement(NamedTuple):
    """What a runner wants to write, with the columns of one verb."""

    id: int
    token: UUID
    verb: str
    delay: timedelta | None = None
    error: str | None = None
    reason: str | None = None
    result: Any = None
    xid: int | None = None


class Answer(NamedTuple):
    """A word of the reconciliation: landed, done, busy, expired, lost, gone, unknown; and the status that it led to."""

    word: str
    status: str | None = None
