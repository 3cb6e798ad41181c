"""What the store asks of a connection, its own (`own_connection`) or the caller's (`callers_connection`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Executable


class StoreConnection(Protocol):
    """Where the store's statements go: a connection of its own, or one of the caller's."""

    def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement and give all its rows. Errors of the driver pass through, without the values of rows."""
        ...

    def reset(self) -> None:
        """Forget a connection that may be broken."""

    def close(self) -> None:
        """Let the connection go."""
