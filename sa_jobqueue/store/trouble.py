"""What an error of the driver says about the statement that it answered: did the server speak, may it have landed?

Pure judgement of exceptions; what follows from it is decided in the loops.
"""

from __future__ import annotations

from sqlalchemy.exc import DataError, DBAPIError

#: SQLSTATEs by which a server ends the connection: class 08, and the shutdowns among the operator's interventions.
_ENDING = ("08", "57P")
#: SQLSTATEs by which a living server says that this session can't do it: it is read-only, or the statement was prepared in
#: another one.
_OF_THE_SESSION = ("25006", "26", "42P05")
#: The same of everybody: no resources left, or it may be like that in every session.
_FOR_EVERYBODY = ("53", *_OF_THE_SESSION)
#: Classes of SQLSTATE that pass by themselves: rollbacks, something in use, a statement out of its time.
_PASSING = ("40", "55", "57")


def sqlstate_of(error: Exception) -> str | None:
    """The server's code, None where it said none. The drivers' attribute is `sqlstate`, psycopg2's `pgcode`."""
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)


def refused(error: Exception) -> bool:
    """The server itself turned the statement down: it is up and reachable, and nothing has landed."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    sqlstate = sqlstate_of(error)
    return sqlstate is not None and not sqlstate.startswith(_ENDING)


def useless_session(error: Exception) -> bool:
    """Refused for what this session is: a new one may do better, and this one never will.

    A session that began while its database was read-only stays that way, and so does one with a server that is no primary
    any more.
    """
    return (sqlstate_of(error) or "").startswith(_OF_THE_SESSION)


def needs_new_session(error: Exception, failures: int) -> bool:
    """Whether to connect anew before that is tried again which has failed so many times in a row.

    What the server refuses has not broken the connection, and another one costs both sides time. Refused again, it may be
    the session all the same: it keeps the settings that it began with, and the server that it found.
    """
    return failures > 1 or not refused(error) or useless_session(error)


def because_of_a_row(error: Exception) -> bool:
    """The same statement may pass without one of its rows: the server, or the driver before it, took offence at one.

    Any SQLSTATE may come of a single row, for triggers choose their own and may be slow as well; the exceptions are
    those that say that nobody could write now.
    """
    if not isinstance(error, DBAPIError):
        # A lone surrogate, a duration beyond all range.
        return isinstance(error, UnicodeError | OverflowError)
    sqlstate = sqlstate_of(error)
    if sqlstate is None:
        return isinstance(error, DataError)  # the driver's own, for a NUL for example
    return refused(error) and not nobody_could(error)


def nobody_could(error: Exception) -> bool:
    """The server turned the statement down for a reason of its own, which has nothing to do with who asked for what."""
    return (sqlstate_of(error) or "").startswith(_FOR_EVERYBODY)


def passes_by_itself(error: Exception) -> bool:
    """The same row may well pass later: what was refused was not what it holds."""
    return (sqlstate_of(error) or "").startswith(_PASSING)


def nobodys_fault(error: Exception) -> bool:
    """A right, a table or a column is missing, or the statement is wrong: so it says of every row, or of none.

    A trigger may fail with the same for one row alone; but then the others pass.
    """
    return (sqlstate_of(error) or "").startswith("42")


def snapshot_too_old(error: Exception) -> bool:
    """A serialization failure: no statement of the same transaction will pass, only another transaction."""
    return sqlstate_of(error) == "40001"


def fault_of(error: Exception) -> str:
    """An error for events and rows: its type, SQLSTATE and constraint. Never its text, which may quote a payload."""
    cause = getattr(error, "orig", None) or error
    sqlstate, constraint = sqlstate_of(error), getattr(getattr(cause, "diag", None), "constraint_name", None)
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
        and sqlstate_of(error) is None
    )
