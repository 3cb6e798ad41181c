"""An exception as text that can always be stored: what `last_error` and the event of a failure say.

Whatever was raised, the text is valid UTF-8 without NUL and at most `LONGEST_ERROR` bytes, and making it neither
raises nor takes long. It never holds local variables, source lines or payloads, only what the exception says itself; and
of a database's error the message alone, for its DETAIL quotes whole rows, and the parameters of the statement are values.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError, StatementError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

#: Bytes of UTF-8, the bound of one stored error.
LONGEST_ERROR = 4096

#: Characters of the exception's own message: leaves room for frames and causes, even in CJK or emoji.
_MESSAGE = 1500
#: Innermost frames: where it was raised says more than how it was called.
_FRAMES = 6
#: The files of this library.
_OWN = str(Path(__file__).parent / "_")[:-1]
_CAUSES = 3
_MEMBERS = 5
_LONGEST_WALK = 1000
_DETAIL = "\nDETAIL:"


def describe_error(error: BaseException) -> str:
    """Type, message, innermost locations, members of a group and causes of an exception, in that order.

    At most 4096 bytes of UTF-8, cut on a character boundary; NUL becomes U+FFFD and lone surrogates their escapes, so
    that PostgreSQL can store it. Never raises, also when the exception's own `__str__` does.
    """
    lines = [headline(error, length=_MESSAGE), *_locations(error.__traceback__)]
    if isinstance(error, BaseExceptionGroup):
        lines += [f"- {headline(member)}" for member in error.exceptions[:_MEMBERS]]
        if len(error.exceptions) > _MEMBERS:
            lines.append(f"- and {len(error.exceptions) - _MEMBERS} more")
    chain = list(causes(error))
    for cause in chain[:_CAUSES]:
        lines += [
            f"caused by {headline(cause)}",
            *_locations(cause.__traceback__, limit=1),
        ]
    if len(chain) > _CAUSES:
        lines.append(f"and {len(chain) - _CAUSES} more causes")
    return storable("\n".join(lines))


def storable(text: str, *, limit: int = LONGEST_ERROR) -> str:
    """The text as PostgreSQL can store it, in at most `limit` bytes of UTF-8; a cut text ends with an ellipsis."""
    data = text[: limit + 1].replace("\0", "\ufffd").encode("utf-8", "backslashreplace")
    if len(data) <= limit and len(text) <= limit:
        return data.decode("utf-8")
    ellipsis = "…"
    return data[: limit - len(ellipsis.encode())].decode("utf-8", "ignore") + ellipsis


def headline(error: BaseException, *, length: int = 200) -> str:
    """Type and message on one line's worth of text, the message cut after `length` characters. Never raises."""
    name = _name(error)
    try:
        message = _message(error)
    except BaseException as failure:  # whatever an exception's own code raises, the failure is written down
        message = f"(no message: its __str__ raised {type(failure).__qualname__})"
    if len(message) > length:
        message = f"{message[:length]}… ({len(message)} characters)"
    return f"{name}: {message}" if message else name


def driver_message(error: BaseException) -> str:
    """What a database driver's error says, without the DETAIL and what follows it: the values of a row."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return primary if isinstance(primary, str) else str(error).partition(_DETAIL)[0]


def hide_values(error: StatementError) -> None:
    """Take what quotes rows and parameters out of the texts of a database's error and its causes, in place.

    Types, SQLSTATEs and tracebacks stay, and so do `error.params` and the driver's diagnostics: for who asks by name.
    """
    error.hide_parameters = True
    if error.orig is not None:
        error.args = (_wrapped_message(error.orig),)
    for cause in causes(error):
        if _from_driver(cause):
            cause.args = (driver_message(cause),)
            if isinstance(getattr(cause, "detail", None), str):  # asyncpg appends it to its message
                vars(cause).pop("detail", None)


@contextmanager
def values_hidden() -> Iterator[None]:
    """Within it a database's error passes through as `hide_values` leaves it."""
    try:
        yield
    except DBAPIError as error:
        hide_values(error)
        raise


def causes(error: BaseException) -> Iterator[BaseException]:
    """The chain that Python's own traceback would print; each exception once, however the chain is knotted."""
    seen = {id(error)}
    while len(seen) <= _LONGEST_WALK:
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause


def _message(error: BaseException) -> str:
    if not isinstance(error, StatementError):
        return driver_message(error) if _from_driver(error) else str(error)
    lines = [f"({added})" for added in error.detail]
    lines.append(str(error.args[0]) if error.orig is None else _wrapped_message(error.orig))
    if error.statement:
        lines.append(f"[SQL: {error.statement}]")
    return "\n".join(lines)


def _wrapped_message(cause: BaseException) -> str:
    return f"({_name(cause)}) {driver_message(cause)}"


def _from_driver(error: BaseException) -> bool:
    """An error of psycopg, psycopg2, asyncpg, or SQLAlchemy's adapter of the last."""
    return hasattr(error, "diag") or hasattr(error, "sqlstate")


def _name(error: BaseException) -> str:
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _locations(traceback: TracebackType | None, *, limit: int = _FRAMES) -> Iterator[str]:
    """The innermost, and before them the handler's own line when it is further out: that is where its author looks."""
    innermost: deque[TracebackType] = deque(maxlen=limit)
    handler = None
    while traceback is not None:
        innermost.append(traceback)
        if handler is None and not traceback.tb_frame.f_code.co_filename.startswith(_OWN):
            handler = traceback
        traceback = traceback.tb_next
    if limit > 1 and handler is not None and handler not in innermost:
        innermost[0] = handler
    for entry in innermost:
        code = entry.tb_frame.f_code
        yield f"  at {code.co_filename}:{entry.tb_lineno} in {code.co_qualname}"
