"""About the connection itself: who answers on it, by what clock, and what holds for the statements of this transaction?"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, bindparam, cast, func, select, text, true

from sa_jobqueue.sql import moment, word
from sa_jobqueue.trigger import POLICY_OFF, POLICY_SETTING

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

    def value(name: str) -> ColumnElement[str]:
        return cast(bindparam(name, type_=Text), Text)

    return select(_setting("statement_timeout", value("statement")), _setting("lock_timeout", value("lock")))


@cache
def unheard() -> Executable:
    """In this transaction jobs wake nobody."""
    return select(_setting(POLICY_SETTING, word(POLICY_OFF)))


@cache
def constraints_now() -> Executable:
    """In this transaction a deferred constraint speaks at the statement, not at the commit."""
    return text("SET CONSTRAINTS ALL IMMEDIATE")  # there is no construct for it


def _setting(name: str, value: ColumnElement[str]) -> ColumnElement[str]:
    """Sets it until the end of the transaction."""
    return func.set_config(word(name), value, true())
