"""What an error of the driver says about the statement that it answered: did the server speak, may it have landed?

Pure judgement of exceptions; what follows from it is decided in the loops.
"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

#: SQLSTATEs by which a server ends the connection: class 08, and the shutdowns among the operator's interventions.
_ENDING = ("08", "57P")


def refused(error: Exception) -> bool:
    """The server itself turned the statement down: it is up and reachable, and nothing has landed."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    sqlstate = getattr(error.orig, "sqlstate", None)
    return sqlstate is not None and not sqlstate.startswith(_ENDING)


def nothing_landed(error: Exception) -> bool:
    """Refused, or no connection could be had to send anything on. Anything else leaves it open what has landed."""
    if refused(error):
        return True
    # Without a statement SQLAlchemy tells of a connect or of a COMMIT; the latter fails with its connection.
    return (
        isinstance(error, DBAPIError)
        and error.statement is None
        and not error.connection_invalidated
        and getattr(error.orig, "sqlstate", None) is None
    )
