"""What an error of the driver says about the statement that it answered: did the server speak, may it have landed?

Pure judgement of exceptions; what follows from it is decided in the loops.
"""

from __future__ import annotations

from sqlalchemy.exc import DataError, DBAPIError

#: SQLSTATEs by which a server ends the connection: class 08, and the shutdowns among the operator's interventions.
_ENDING = ("08", "57P")
#: SQLSTATEs by which a living server says that nobody could write now: no resources left, read-only.
_FOR_EVERYBODY = ("53", "25006")
#: Classes of SQLSTATE that pass by themselves: rollbacks, something in use, a statement out of its time.
_PASSING = ("40", "55", "57")


def refused(error: Exception) -> bool:
    """The server itself turned the statement down: it is up and reachable, and nothing has landed."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    sqlstate = _sqlstate(error)
    return sqlstate is not None and not sqlstate.startswith(_ENDING)


def because_of_a_row(error: Exception) -> bool:
    """The same statement may pass without one of its rows: the server, or the driver before it, took offence at one.

    Any SQLSTATE may come of a single row, for triggers choose their own and may be slow as well; the exceptions are
    those that say that nobody could write now.
    """
    if not isinstance(error, DBAPIError):
        return isinstance(
            error, (UnicodeError, OverflowError)
        )  # a lone surrogate, a duration beyond all range
    sqlstate = _sqlstate(error)
    if sqlstate is None:
        return isinstance(error, DataError)  # the driver's own, for a NUL for example
    return refused(error) and not sqlstate.startswith(_FOR_EVERYBODY)


def passes_by_itself(error: Exception) -> bool:
    """The same row may well pass later: what was refused was not what it holds."""
    return (_sqlstate(error) or "").startswith(_PASSING)


def fault_of(error: Exception) -> str:
    """An error for events and rows: its type, SQLSTATE and constraint. Never its text, which may quote a payload."""
    cause = getattr(error, "orig", None) or error
    sqlstate, constraint = _sqlstate(error), getattr(getattr(cause, "diag", None), "constraint_name", None)
    return "".join(
        (
            type(cause).__name__,
            "" if sqlstate is None else f", SQLSTATE {sqlstate}",
            "" if constraint is None else f", constraint {constraint}",
        )
    )


def nothing_landed(error: Exception) -> bool:
    """Refused, or no connection could be had to send anything on. Anything else leaves it open what has landed."""
    if refused(error):
        return True
    # Without a statement SQLAlchemy tells of a connect or of a COMMIT; the latter fails with its connection.
    return (
        isinstance(error, DBAPIError)
        and error.statement is None
        and not error.connection_invalidated
        and _sqlstate(error) is None
    )


def _sqlstate(error: Exception) -> str | None:
    return getattr(getattr(error, "orig", None), "sqlstate", None)
