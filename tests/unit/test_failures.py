"""Every exception becomes a text that PostgreSQL can store."""

from __future__ import annotations

import time
import traceback
from typing import Never

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError, StatementError

from sa_jobqueue.failures import LONGEST_ERROR, describe_error, headline, hide_values, storable


class UnprintableError(Exception):
    """Its message can't be had."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class UnprintableToTheEndError(Exception):
    """Even asking for its message would end the thread."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Aborted(BaseException):
    """Not an Exception."""


def raised(error: BaseException) -> BaseException:
    """The error with a traceback, as a handler would raise it."""
    try:
        raise error
    except BaseException as caught:
        return caught


def chain(length: int) -> BaseException:
    """An error with `length` causes behind it."""
    error: BaseException = ValueError("cause 0")
    for number in range(1, length + 1):
        following = KeyError(f"cause {number}")
        following.__cause__ = raised(error)
        error = following
    return raised(error)


def check_storable(text: str) -> None:
    """What PostgreSQL's text and the row's bound ask for."""
    assert "\0" not in text
    assert len(text.encode("utf-8")) <= LONGEST_ERROR


HARD = {
    "NUL": ValueError("a\x00b"),
    "surrogate": ValueError("\udcff"),
    "long": ValueError("é" * 5_000_000),
    "long, four bytes a letter": ValueError("\U0001f600" * 5_000_000),
    "long, surrogates": ValueError("\udcff" * 5_000_000),
    "unprintable": UnprintableError(),
    "unprintable to the end": UnprintableToTheEndError(),
    "group": ExceptionGroup("many", [ValueError(f"member {number}") for number in range(1000)]),
    "nested groups": ExceptionGroup(
        "outer", [ExceptionGroup("inner", [UnprintableError()]), ValueError("x" * 9999)]
    ),
    "chain": chain(200),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(2),
    "BaseException": Aborted("stop"),
    "base group": BaseExceptionGroup("base", [Aborted("stop")]),
}


@pytest.mark.parametrize("error", HARD.values(), ids=HARD.keys())
def test_whatever_is_raised_can_be_written_down(error: BaseException) -> None:
    """The text is bounded valid UTF-8 that begins with the type's name, and is made at once."""
    began = time.perf_counter()
    text = describe_error(raised(error))
    assert time.perf_counter() - began < 0.5
    check_storable(text)
    name = type(error).__qualname__
    assert text.split(":")[0].split("\n")[0].rsplit(".", 1)[-1] == name


def test_the_hard_ones_keep_what_can_be_kept() -> None:
    """Bounding an error doesn't mean losing what it says."""
    assert "a\ufffdb" in describe_error(HARD["NUL"])
    assert "\\udcff" in describe_error(HARD["surrogate"])
    assert "(5000000 characters)" in describe_error(HARD["long"])
    assert "its __str__ raised RuntimeError" in describe_error(HARD["unprintable"])
    assert "- and 995 more" in describe_error(HARD["group"])
    assert "- ValueError: member 4" in describe_error(HARD["group"])
    assert "caused by KeyError: 'cause 199'" in describe_error(HARD["chain"])
    assert "and 197 more causes" in describe_error(HARD["chain"])


def test_locations_tell_where_but_no_values() -> None:
    """The innermost frames are named; local variables, which may be secrets, aren't."""

    def fail(password: str) -> Never:
        raise LookupError("no such document")

    with pytest.raises(LookupError) as caught:
        fail("hunter2")
    first, *rest = describe_error(caught.value).split("\n")
    assert first == "LookupError: no such document"
    assert rest[-1].startswith(f"  at {__file__}:")
    assert rest[-1].endswith(".fail")
    assert "hunter2" not in "".join(rest)


def test_a_deep_recursion_keeps_the_innermost_frames() -> None:
    """A thousand equal frames don't push the message out."""

    def dive(depth: int) -> None:
        if not depth:
            raise RecursionError("too deep")
        dive(depth - 1)

    with pytest.raises(RecursionError) as caught:
        dive(200)
    assert len(describe_error(caught.value).split("\n")) == 7


def test_the_line_of_the_handler_is_told_however_deep_it_was_raised() -> None:
    """A driver's or this library's frames don't push it out."""

    def dive(depth: int) -> None:
        if not depth:
            raise LookupError("too deep")
        dive(depth - 1)

    def handler() -> None:
        dive(20)

    with pytest.raises(LookupError) as caught:
        handler()
    _, first, *rest = describe_error(caught.value.with_traceback(caught.tb.tb_next)).split("\n")
    assert first.endswith(".handler")
    assert all(line.endswith(".dive") for line in rest)
    assert len(rest) == 5


def test_a_context_is_told_unless_it_is_suppressed() -> None:
    """What Python's own traceback leaves out (`from None`) is left out here."""

    def replace(first: Exception) -> Never:
        try:
            raise first
        except KeyError:
            raise ValueError("second")  # noqa: B904 - the implicit context is what is tested

    with pytest.raises(ValueError, match="second") as caught:
        replace(KeyError("first"))
    assert "caused by KeyError: 'first'" in describe_error(caught.value)
    caught.value.__suppress_context__ = True
    assert "caused by" not in describe_error(caught.value)


def test_a_knotted_chain_ends() -> None:
    """Two errors that name each other as cause don't keep a runner busy for ever."""
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert describe_error(one) == "ValueError: one\ncaused by ValueError: two"


@given(st.text(st.characters(), max_size=200), st.integers(3, 300))
def test_a_cut_falls_on_a_character_boundary(text: str, limit: int) -> None:
    """Every text, with surrogates and NUL, fits any bound, and one that fits loses nothing."""
    stored = storable(text, limit=limit)
    data = stored.encode("utf-8")
    assert len(data) <= limit
    assert "\0" not in stored
    whole = text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode()
    assert stored == whole if len(whole.encode()) <= limit else whole.startswith(stored.removesuffix("…"))


def test_an_error_without_message_is_its_name() -> None:
    """No trailing colon for `raise ValueError`."""
    assert headline(ValueError()) == "ValueError"
    assert headline(Aborted("x")) == f"{__name__}.Aborted: x"


class CheckViolation(Exception):  # noqa: N818 - named as the drivers do
    """As psycopg raises it: the text is libpq's, with labels in the client's language, the fields are the server's."""

    sqlstate = "23514"

    class diag:  # noqa: N801
        message_primary = 'violates check constraint "c"'

    def __init__(self) -> None:
        super().__init__(f"FEHLER:  {self.diag.message_primary}\nDETAIL:  Failing row contains (S3CR3T-42)")


class CheckViolationError(Exception):
    """As asyncpg raises it: fields are attributes, and the text is put together when asked for."""

    sqlstate = "23514"
    detail: str | None = None

    def __init__(self) -> None:
        super().__init__('violates check constraint "c"')
        self.detail = "Failing row contains (S3CR3T-42,\nHINT: S3CR3T-42)"

    def __str__(self) -> str:
        return f"{self.args[0]}\nDETAIL:  {self.detail}" if self.detail else str(self.args[0])


def from_database(driver_error: Exception) -> IntegrityError:
    """The error as SQLAlchemy hands it on."""
    error = IntegrityError("INSERT INTO t VALUES (%(v)s)", {"v": "S3CR3T-42"}, driver_error)
    error.__cause__ = driver_error
    return error


@pytest.mark.parametrize("driver_error", [CheckViolation, CheckViolationError])
def test_no_row_of_a_database_error_is_told(driver_error: type[Exception]) -> None:
    """DETAIL quotes the failing row, the parameters are its values: neither gets into a log or a stored error."""
    error = from_database(driver_error())
    assert "S3CR3T" in str(error)
    for text in (describe_error(error), describe_error(driver_error()), headline(driver_error())):
        assert 'violates check constraint "c"' in text
        assert "S3CR3T" not in text
    first, statement, cause = describe_error(error).split("\n")
    assert first.startswith("sqlalchemy.exc.IntegrityError: (")
    assert statement == "[SQL: INSERT INTO t VALUES (%(v)s)]"
    assert cause.startswith("caused by ")


@pytest.mark.parametrize("driver_error", [CheckViolation, CheckViolationError])
def test_values_can_be_taken_out_of_an_error_in_place(driver_error: type[Exception]) -> None:
    """Also a traceback that somebody else prints shows them no more; types and SQLSTATE stay."""
    error = from_database(driver_error())
    hide_values(error)
    printed = "".join(traceback.format_exception(error))
    assert "S3CR3T" not in printed
    assert printed.count('violates check constraint "c"') == 2
    assert error.orig.sqlstate == "23514"


def test_what_somebody_added_to_a_statement_error_is_told() -> None:
    """SQLAlchemy and this library add what to do about it, and an error without a driver's cause has only its text."""
    error = StatementError("no value for 'v'", None, None, None)
    error.add_detail("run: alembic upgrade head")
    assert describe_error(error) == (
        "sqlalchemy.exc.StatementError: (run: alembic upgrade head)\nno value for 'v'"
    )
