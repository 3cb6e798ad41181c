"""About the connection itself: who answers on it, by what clock, and what holds for the statements of this transaction?"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, bindparam, cast, func, select, text, true

from sa_jobqueue.sql import moment, word

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable, Select


@cache
def backend_pid() -> Select[Any]:
    """The process that runs this very statement."""
    return select(func.pg_backend_pid())


@cache
def listening() -> Select[Any]:
    """The channels that this session listens on."""
    return select(func.pg_listening_channels())


@cache
def clock() -> Select[Any]:
    """The database's time."""
    return select(moment())


@cache
def bounded() -> Executable:
    """Bounds on what follows in this transaction, as texts such as "60s".

    Parameters: `statement` for each statement, `lock` for each wait for a lock.
    """

    def setting(name: str, value: str) -> ColumnElement[str]:
        return func.set_config(word(name), cast(bindparam(value, type_=Text), Text), true())

    return select(setting("statement_timeout", "statement"), setting("lock_timeout", "lock"))


@cache
def constraints_now() -> Executable:
    """In this transaction a deferred constraint speaks at the statement, not at the commit."""
    return text("SET CONSTRAINTS ALL IMMEDIATE")  # there is no construct for it
