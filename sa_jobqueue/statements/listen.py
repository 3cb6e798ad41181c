"""LISTEN, UNLISTEN and NOTIFY: who wants to hear of a channel, and what is said there.

A channel is a name of its own, whatever characters it has. Which one tells of jobs stands with the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, bindparam, cast, func, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ClauseElement, Executable

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.sql.compiler import SQLCompiler


class ChannelCommand(Executable, ClauseElement):
    """A command about one channel, for which there is no construct; it answers with no rows."""

    inherit_cache: bool | None = False

    def __init__(self, verb: str, channel: str) -> None:
        self.verb = verb
        self.channel = channel


@compiles(ChannelCommand)
def _compile(command: ChannelCommand, compiler: SQLCompiler, **_: Any) -> str:
    return f"{command.verb} {compiler.preparer.quote_identifier(command.channel)}"


def listen(channel: str) -> ChannelCommand:
    """From its commit on this session hears what is notified on the channel."""
    return ChannelCommand("LISTEN", channel)


def unlisten(channel: str) -> ChannelCommand:
    """From its commit on this session doesn't hear the channel any more."""
    return ChannelCommand("UNLISTEN", channel)


def notify() -> Select[Any]:
    """Whoever listens hears it at the commit. Parameters: `channel`, `payload`."""
    words = (cast(bindparam(name, type_=Text), Text) for name in ("channel", "payload"))
    return select(func.pg_notify(*words))
