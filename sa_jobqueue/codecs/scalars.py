"""Values without members: JSON's own, and those of the standard library that become a text."""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode, b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sa_jobqueue.codecs.base import Codec, json_type
from sa_jobqueue.misfits import MisfitError, refused_by, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue.codecs.base import JsonType

_MOST_TOLD = 10


class Own(Codec):
    """One of JSON's own types: str, int, bool or None. A bool is no int here, though Python thinks so."""

    def __init__(self, kind: type, writes: JsonType) -> None:
        self.kind = kind
        self.name: str = "None" if kind is type(None) else type_name(kind)
        self.writes: frozenset[JsonType] = frozenset([writes])

    def encode(self, value: Any) -> Any:
        return value if type(value) is self.kind or self.matches(value) else self.encode_other(value)

    def decode(self, value: Any) -> Any:
        if type(value) is self.kind:
            return value
        raise self.refusal(value)

    def matches(self, value: object) -> bool:
        return isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))

    def takes(self, kind: type) -> bool:
        return issubclass(kind, self.kind) and (self.kind is bool or not issubclass(kind, bool))


class Float(Codec):
    """float, which may be given an int that it can hold: the run gets the float that equals it."""

    name: str = "float"
    writes: frozenset[JsonType] = frozenset(["number"])

    def encode(self, value: Any) -> Any:
        if not self.matches(value):
            return self.encode_other(value)
        return self._float(value) + 0.0  # what is equal is written alike: 1 as 1.0, and -0.0 as 0.0

    def decode(self, value: Any) -> Any:
        if not self.matches(value):
            raise self.refusal(value)
        if abs(number := self._float(value)) == math.inf:  # what Python makes of a number that is too large
            raise MisfitError("a number that is too large for a float")
        return number

    def matches(self, value: object) -> bool:
        return isinstance(value, float | int) and not isinstance(value, bool)

    def takes(self, kind: type) -> bool:
        return issubclass(kind, float | int) and not issubclass(kind, bool)

    @staticmethod
    def _float(value: float) -> float:
        try:
            exact = float(value)
        except OverflowError:
            exact = 0.0
        if exact != value and value == value:  # a NaN is refused where its path is known
            raise MisfitError("an integer that no float holds exactly: annotate int, or pass a float")
        return exact


class Number(Codec):
    """int or float: JSON tells 7 from 7.0, so each comes back as it was."""

    name: str = "int | float"
    writes: frozenset[JsonType] = frozenset(["number"])

    def encode(self, value: Any) -> Any:
        return (FLOAT if isinstance(value, float) else INT).encode(value)

    def decode(self, value: Any) -> Any:
        return (FLOAT if isinstance(value, float) else INT).decode(value)

    def matches(self, value: object) -> bool:
        return FLOAT.matches(value)

    def takes(self, kind: type) -> bool:
        return FLOAT.takes(kind)


class Text(Codec):
    """A class whose values have a text that says everything: `write` makes it and `read` makes the value of it."""

    writes: frozenset[JsonType] = frozenset(["text"])

    def __init__(self, kind: type, write: Callable[[Any], str], read: Callable[[str], Any]) -> None:
        self.kind = kind
        self.name: str = type_name(kind)
        self._write = write
        self._read = read

    def encode(self, value: Any) -> Any:
        if not isinstance(value, self.kind):
            return self.encode_other(value)
        text = self._write(value)
        if type(value) is not self.kind and not self._reads_back(text, value):
            # A datetime where a date is asked for, or a subclass that knows more: something of it would be lost.
            raise self.refusal(value)
        return text

    def decode(self, value: Any) -> Any:
        if type(value) is not str:
            raise self.refusal(value)
        try:
            return self._read(value)
        except (ValueError, ArithmeticError):
            raise MisfitError(f"expected {self.name}, got a text that is none") from None

    def matches(self, value: object) -> bool:
        return isinstance(value, self.kind)

    def takes(self, kind: type) -> bool:
        return issubclass(kind, self.kind)

    def _reads_back(self, text: str, value: object) -> bool:
        try:
            return bool(self._read(text) == value)
        except (ValueError, ArithmeticError):
            return False


class Members(Codec):
    """An Enum: stored is the value of the member, which survives a renaming of members better than their names."""

    def __init__(self, kind: type[Enum]) -> None:
        self.kind = kind
        self.name: str = type_name(kind)
        # Of a Flag only single bits are listed, and no member where none has one.
        self.writes: frozenset[JsonType] = (
            frozenset(["number"])
            if issubclass(kind, Flag)
            else frozenset(_json_type_of_constant(member._value_, self.name) for member in kind)
        )

    def encode(self, value: Any) -> Any:
        # Not its `value`, which a class may define anew, as what it shows.
        return value._value_ if isinstance(value, self.kind) else self.encode_other(value)

    def decode(self, value: Any) -> Any:
        if json_type(value) not in self.writes:
            raise self.refusal(value)
        try:
            member: Any = self.kind(value)
        except ValueError:
            member = None
        except (Exception, SystemExit) as error:  # its own _missing_
            raise refused_by(f"expected {self.name}: it", error) from None
        if not isinstance(member, self.kind):  # a Flag may let go of what it doesn't know, and give the int
            told = _listed([member._value_ for member in self.kind])
            raise MisfitError(f"expected {self.name}, got none of its values: {told}")
        return member

    def matches(self, value: object) -> bool:
        return isinstance(value, self.kind)

    def takes(self, kind: type) -> bool:
        return issubclass(kind, self.kind)


class Constants(Codec):
    """A Literal: one of these values, of the very type."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.name: str = f"Literal[{_listed(values)}]"
        self.writes: frozenset[JsonType] = frozenset(
            _json_type_of_constant(value, self.name) for value in values
        )
        self._known = {(type(value), value) for value in values}

    def encode(self, value: Any) -> Any:
        if self.matches(value):
            return value
        if isinstance(value, str | int | None):
            raise MisfitError(f"expected {self.name}, got another value")
        return self.encode_other(value)

    def decode(self, value: Any) -> Any:
        if self.matches(value):
            return value
        if json_type(value) in self.writes:
            raise MisfitError(f"expected {self.name}, got another value")
        raise self.refusal(value)

    def matches(self, value: object) -> bool:
        return isinstance(value, str | int | None) and (type(value), value) in self._known


def _json_type_of_constant(value: object, owner: str) -> JsonType:
    kind = json_type(value)
    if kind is None or kind in ("array", "object"):
        raise TypeError(
            f"{owner} has a value that is {type_name(type(value))}: a payload can hold str, int, float, bool and None"
        )
    return kind


def _listed(values: Any) -> str:
    told = ", ".join(repr(value) for value in values[:_MOST_TOLD])
    return told if len(values) <= _MOST_TOLD else f"{told}, ..."


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise MisfitError("NaN and infinity are no amounts that compare: pass None, or a finite Decimal")
    return str(value)


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise InvalidOperation
    return value


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,12})H)?(?:(?P<minutes>\d{1,12})M)?"
    r"(?:(?P<seconds>\d{1,14})(?:[.,](?P<fraction>\d{1,6})0*)?S)?)?",
    re.ASCII,
)


def duration_text(value: timedelta) -> str:
    """ISO 8601, in days and seconds: "P3DT4.5S", "-PT0.000001S"; to the microsecond, as timedelta is."""
    sign, whole = ("-", -value) if value < timedelta(0) else ("", value)
    fraction = f".{whole.microseconds:06}".rstrip("0") if whole.microseconds else ""
    days = f"{whole.days}D" if whole.days else ""
    seconds = f"T{whole.seconds}{fraction}S" if whole.seconds or fraction or not days else ""
    return f"{sign}P{days}{seconds}"


def duration(text: str) -> timedelta:
    """What `duration_text()` wrote, and any other ISO 8601 duration without years and months. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found[part] for part in ("days", "hours", "minutes", "seconds")):
        raise ValueError("no duration")
    numbers = {part: int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds")}
    whole = timedelta(**numbers, microseconds=int((found["fraction"] or "").ljust(6, "0")))
    return -whole if found["sign"] == "-" else whole


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError from error


NONE = Own(type(None), "null")
INT = Own(int, "number")
FLOAT = Float()
NUMBER = Number()
TEXT = Own(str, "text")

#: The classes that are codecs of their own.
SCALARS: dict[Any, Codec] = {
    None: NONE,
    type(None): NONE,
    bool: Own(bool, "boolean"),
    int: INT,
    float: FLOAT,
    str: TEXT,
    UUID: Text(UUID, str, UUID),
    datetime: Text(datetime, datetime.isoformat, datetime.fromisoformat),
    date: Text(date, lambda value: value.isoformat(), date.fromisoformat),
    time: Text(time, time.isoformat, time.fromisoformat),
    timedelta: Text(timedelta, duration_text, duration),
    Decimal: Text(Decimal, _decimal_text, _decimal),
    bytes: Text(bytes, lambda value: b64encode(value).decode("ascii"), _bytes),
}
