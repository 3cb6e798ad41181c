"""What does not fit is refused where it is passed, with its path, and where it is read, and no value is shown."""

from __future__ import annotations

import enum
import json
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pydantic_core
import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from sqlmodel import Field, SQLModel

from sa_jobqueue.codecs import UnsupportedAnnotationError, codec_for
from sa_jobqueue.misfits import MisfitError
from tests.codecs.examples import (
    AUTUMN,
    Box,
    Cat,
    Colour,
    Dog,
    Level,
    Line,
    Options,
    Order,
    Page,
    Person,
    Point,
    Tree,
)

T = TypeVar("T")
SECRET = "S3CR3T-42"
UUID_TEXT = "0191d3c2-7f8e-7a3b-9c4d-5e6f7081920"
#: What AUTUMN says, by its offset.
SAME = datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=1)))


class Longer(Point):
    pass


class Base(DeclarativeBase):
    pass


class Document(Base):
    __tablename__ = "documents"
    id: Mapped[int] = mapped_column(primary_key=True)


class MappedDataclass(MappedAsDataclass, Base):
    __tablename__ = "dataclasses"
    id: Mapped[int] = mapped_column(primary_key=True)


class MappedModel(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)


@dataclass
class WithInitVar:
    x: InitVar[int]


@dataclass
class Positive:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError(f"{self.x} is negative")


@dataclass
class Doubled:
    x: int

    def __post_init__(self) -> None:
        self.x *= 2


@dataclass
class Counted:
    x: int
    count: int = field(default=0, init=False)


@dataclass(init=False)
class Moved:
    x: int

    def __init__(self, y: int) -> None:
        self.x = y


@dataclass(slots=True)
class Slotted:
    x: int


class Next(NamedTuple):
    x: int


class NextOne(Next):
    def __new__(cls, x: int) -> NextOne:
        return super().__new__(cls, x + 1)


@dataclass
class Endless(Generic[T]):
    x: T
    next: Endless[list[T]] | None = None


class Fussy(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise KeyError(value)


class Bit(enum.IntFlag, boundary=enum.EJECT):
    A = 1


class Judged(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    x: str = ""
    y: Any = None

    @pydantic.field_validator("x")
    @classmethod
    def _judge(cls, x: str) -> str:
        kind = {"a": ValueError, "b": AssertionError, "c": KeyError, "d": TypeError}.get(x[:1])
        if kind is not None:
            raise kind(x)
        if x[:1] == "e":
            raise pydantic_core.PydanticCustomError("not_known", "not known: {x}", {"x": x})
        return x

    @pydantic.field_serializer("x")
    def _write(self, x: str) -> str:
        if x[:1] == "f":
            raise ValueError(x)
        return x


class Zoned(pydantic.BaseModel):
    zone: ZoneInfo


class JudgedStruct(msgspec.Struct):
    x: str

    def __post_init__(self) -> None:
        if self.x[:1] in "ab":
            raise {"a": ValueError, "b": KeyError}[self.x[0]](self.x)
        if self.x[:1] == "x":
            sys.exit(self.x)


@dataclass
class Strict:
    x: str

    def __post_init__(self) -> None:
        sys.exit(self.x)


class Numbered(msgspec.Struct):
    level: Level
    constant: Literal[1, 2] = 1


class First(msgspec.Struct, tag=1):
    x: int


class Second(msgspec.Struct, tag=2):
    x: int


def _changed(value: Any, **fields: Any) -> Any:
    for name, one in fields.items():
        setattr(value, name, one)
    return value


def _holding_itself() -> Any:
    judged = Judged()
    return _changed(judged, y=judged)


class Hidden(pydantic.BaseModel):
    token: pydantic.SecretStr


class Kinded(msgspec.Struct):
    kind: Colour


class Pairs(enum.Enum):
    A = (1, 2)


#: annotation, value, whether the type is wrong, what is told.
PASSED: list[tuple[Any, Any, bool, str]] = [
    (int, "7", True, r"\$: expected int, got str"),
    (int, 7.0, True, "expected int, got float"),
    (int, True, True, "expected int, got bool"),
    (int, int, True, "got the class int"),
    (float, "7", True, "expected float, got str"),
    (float, True, True, "expected float, got bool"),
    (float, 2**53 + 1, False, "an integer that no float holds exactly"),
    (float, 10**400, False, "an integer that no float holds exactly"),
    (bool, 1, True, "expected bool, got int"),
    (str, b"a", True, "expected str, got bytes"),
    (str, None, True, "expected str, got NoneType"),
    (uuid.UUID, SECRET, True, "expected uuid.UUID, got str"),
    (datetime, date(2026, 1, 1), True, "expected datetime.datetime, got datetime.date"),
    (date, datetime(2026, 1, 1, tzinfo=UTC), True, "expected datetime.date, got datetime.datetime"),
    (Decimal, 1.5, True, "expected decimal.Decimal, got float"),
    (Decimal, Decimal("NaN"), False, "finite"),
    (Decimal, Decimal("Infinity"), False, "finite"),
    (bytes, bytearray(b"a"), True, "expected bytes, got bytearray"),
    (Colour, "red", True, "expected tests.codecs.examples.Colour, got str"),
    (Colour, Level.LOW, True, "expected tests.codecs.examples.Colour, got tests.codecs.examples.Level"),
    (Literal["a", "b"], SECRET, False, r"expected Literal\['a', 'b'\], got another value"),
    (Literal[1], True, False, "another value"),
    (Literal["a"], [], True, "got list"),
    (list[int], (1,), True, r"expected list\[int\], got tuple"),
    (list[int], [1, SECRET], True, r"\$\[1\]: expected int, got str"),
    (list[list[int]], [[], [1, None]], True, r"\$\[1\]\[1\]: expected int"),
    (tuple[int, str], (1,), False, r"expected tuple\[int, str\], got 1 items"),
    (tuple[int, str], (1, 2), True, r"\$\[1\]: expected str, got int"),
    (set[int], [1], True, r"expected set\[int\], got list"),
    (set[int], {"a"}, True, "expected int, got str"),
    (dict[str, int], {1: 1}, True, "a key: expected str, got int"),
    (dict[int, int], {"1": 1}, True, "a key: expected int, got str"),
    (dict[int, int], {True: 1}, True, "a key: expected int, got bool"),
    (dict[str, list[int]], {"a b": [None]}, True, r"\$\['a b'\]\[0\]: expected int"),
    (dict[int, int], {10**4000: 1}, False, "a key: an integer of more than 4,000 digits"),
    (dict[int, int], {10**5000: 1}, False, "a key: an integer of more than 4,000 digits"),
    (dict[Colour, list[int]], {Colour.RED: [None]}, True, r"\$\.red\[0\]: expected int"),
    (dict[datetime, int], {AUTUMN: 1, SAME: 2}, False, "a key: two are written alike"),
    (set[datetime], {AUTUMN, SAME}, False, "two items are written alike"),
    (int | None, SECRET, True, r"expected int \| None, got str"),
    (Doubled, Doubled(1), False, "Doubled comes back from JSON as another value: its constructor"),
    (Counted, _changed(Counted(1), count=1), False, "Counted comes back from JSON as another value"),
    (NextOne, NextOne(1), False, "NextOne comes back from JSON as another value"),
    (Moved, Moved(1), False, "Moved refuses these fields: it raised TypeError"),
    (Positive, _changed(Positive(1), x=-42), False, "Positive refuses these fields: it raised ValueError$"),
    (Slotted, object.__new__(Slotted), False, "Slotted lacks 'x', which was never set"),
    (Point, {"x": 1}, True, "expected tests.codecs.examples.Point, got dict"),
    (Point, Longer(1), True, "got tests.codecs.test_refusals.Longer"),
    (Point, Point("1"), True, r"\$\.x: expected int, got str"),  # type: ignore[arg-type]
    (Line, Line(Point(1), Point(None)), True, r"\$\.end\.x: expected int"),  # type: ignore[arg-type]
    (Tree, Tree(Decimal(1), [Tree(SECRET)]), True, r"\$\.children\[0\]\.value: expected decimal.Decimal"),  # type: ignore[arg-type]
    (Page, (1, "a"), True, "expected tests.codecs.examples.Page, got tuple"),
    (Options, {}, False, "tests.codecs.examples.Options lacks 'model'"),
    (Options, {"model": "m", "sinc": 1}, False, "has no field 'sinc', did you mean 'since'"),
    (Options, OrderedDict(model="m"), True, "got collections.OrderedDict"),
    (Person, {"name": SECRET}, True, "expected tests.codecs.examples.Person, got dict"),
    (Person, Person.model_construct(name=7), True, "expected tests.codecs.examples.Person"),
    (Hidden, Hidden(token=SECRET), False, "comes back from JSON as another value"),  # type: ignore[arg-type]
    (Annotated[int, pydantic.Field(gt=0)], -1, False, "greater than 0"),
    *(
        (Judged, Judged.model_construct(x=letter + SECRET), False, rf"Judged: {text}$")
        for letter, text in (
            ("a", "x: its own code raised ValueError"),
            ("b", "x: its own code raised AssertionError"),
            ("c", "its own code raised KeyError"),
            ("d", "its own code raised TypeError"),
            ("e", "x: refused as not_known"),
        )
    ),
    (Judged, Judged.model_construct(x="f" + SECRET), True, "expected .*Judged that its own dump can write"),
    (Judged, Judged(y=b"\xff"), False, "Judged: its own dump raised UnicodeDecodeError"),
    (Judged, Judged(y=10**5000), False, "Judged: its own code raised ValueError"),
    (Judged, _holding_itself(), False, "Judged: its own dump raised ValueError"),
    (Cat | Person, 7, True, "expected"),
    (Order, Order(SECRET, Decimal(1)), False, "Order: "),  # type: ignore[arg-type]
    (Order, {"id": SECRET}, True, "expected tests.codecs.examples.Order, got dict"),
]


@pytest.mark.parametrize(("annotation", "value", "wrong_type", "text"), PASSED)
def test_what_is_passed_is_refused_with_its_path(
    annotation: Any, value: Any, wrong_type: bool, text: str
) -> None:
    """TypeError for a type, ValueError for a value; neither shows what was passed."""
    with pytest.raises(MisfitError, match=text) as caught:
        codec_for(annotation).encode(value)
    assert caught.value.wrong_type is wrong_type
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


#: annotation, stored JSON, what is told.
STORED: list[tuple[Any, Any, str]] = [
    (int, "7", "expected int, got str"),
    (int, 7.0, "expected int, got float"),
    (int, True, "expected int, got bool"),
    (bool, 1, "expected bool, got int"),
    (float, "7", "expected float, got str"),
    (float, 2**53 + 1, "no float holds exactly"),
    (float, json.loads("1e400"), "too large for a float"),
    *(
        (kind, {"x": "x" + SECRET}, text)
        for kind, text in (
            (Strict, "it raised SystemExit$"),
            (JudgedStruct, "its own code raised SystemExit$"),
        )
    ),
    (uuid.UUID, SECRET, "expected uuid.UUID, got a text that is none"),
    (datetime, SECRET, "a text that is none"),
    (datetime, 7, "expected datetime.datetime, got int"),
    (date, "2026-02-30", "a text that is none"),
    (timedelta, "P1Y", "a text that is none"),
    (timedelta, "P9999999999D", "a text that is none"),
    (Decimal, "NaN", "a text that is none"),
    (Decimal, SECRET, "a text that is none"),
    (bytes, "a", "a text that is none"),
    (bytes, "ä", "a text that is none"),
    (Colour, SECRET, "got none of its values: 'red', 'blue'"),
    (Colour, 7, "expected tests.codecs.examples.Colour, got int"),
    (Level, True, "got bool"),
    (Literal["a"], SECRET, "got another value"),
    (list[int], {}, r"expected list\[int\], got dict"),
    (tuple[int, int], [1], "got 1 items"),
    (set[int], [SECRET], r"\$\[0\]: expected int"),
    (dict[int, int], {"1.5": 1}, "a key: expected the digits of an int"),
    (dict[int, int], {"٣": 1}, "a key: expected the digits of an int"),
    (dict[uuid.UUID, int], {SECRET: 1}, "a key: expected uuid.UUID"),
    (dict[int, int], {"1": 1, "01": 2}, "a key: two are read alike"),
    (dict[uuid.UUID, int], dict.fromkeys([UUID_TEXT + "a", UUID_TEXT + "A"], 1), "a key: two are read alike"),
    (set[Any], [[1]], "an item that no set can hold"),
    (frozenset[Point], [{"x": 1}], "an item that no set can hold"),
    (Fussy, SECRET, "expected .*Fussy: it raised KeyError$"),
    (Bit, 6, "expected .*Bit, got none of its values: 1"),
    (int | None, SECRET, r"expected int \| None, got str"),
    (Point, [], "expected tests.codecs.examples.Point, got list"),
    (Point, {}, "tests.codecs.examples.Point lacks 'x'"),
    (Point, {"x": 1, "z": 1}, "has no field 'z'"),
    (Positive, {"x": -42}, "Positive refuses these fields"),
    (Page, {"title": "a"}, "lacks 'number'"),
    (Options, {"model": 7}, r"\$\.model: expected str"),
    (
        Person,
        {"name": 7, "born": SECRET},
        "name: Input should be a valid string; born: Input should be a valid date",
    ),
    (Order, {"id": SECRET, "total": "1"}, r"Invalid UUID - at `\$.id`"),
    (Zoned, {"zone": SECRET}, "Zoned: zone: refused as zoneinfo_str"),
    (Annotated[uuid.UUID, pydantic.Field()], SECRET, "should be a valid UUID$"),
    (JudgedStruct, {"x": f"a{SECRET}"}, "JudgedStruct: its own code raised ValueError$"),
    (list[JudgedStruct], [{"x": f"b{SECRET}"}], "JudgedStruct: its own code raised KeyError$"),
    (Numbered, {"level": 424242}, r"Numbered: Invalid enum value - at `\$.level`$"),
    (Numbered, {"level": 1, "constant": 424242}, r"Invalid enum value - at `\$.constant`$"),
    (First | Second, {"type": 424242}, r"Invalid value - at `\$.type`$"),
    (Kinded, {"kind": SECRET}, "Kinded: Invalid enum value"),
    (
        Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
        {"kind": SECRET},
        "expected one of the tags 'cat', 'dog'",
    ),
    (Order, [], "Expected `object`"),
]


@pytest.mark.parametrize(("annotation", "stored", "text"), STORED)
def test_what_is_stored_is_checked_when_it_is_read(annotation: Any, stored: Any, text: str) -> None:
    """Whoever enqueued it, by name or by other code, the handler gets what its annotations say."""
    with pytest.raises(MisfitError, match=text) as caught:
        codec_for(annotation).decode(stored)
    assert SECRET not in str(caught.value)
    assert "424242" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Path, r"pathlib\..*Path is no type that a payload can hold"),
        (Session, "sqlalchemy.orm.session.Session is no type"),
        (Document, "Document is a mapped class, .* take its primary key"),
        (list[Document], "mapped class"),
        (MappedDataclass, "mapped class"),
        (MappedModel, "mapped class"),
        (Document | None, "mapped class"),
        (Callable[[], int], "no type that a payload can hold"),
        (T, "no type that a payload can hold"),
        (complex, "no type that a payload can hold"),
        (type[int], "no type that a payload can hold"),
        (str | uuid.UUID, r"str \| uuid.UUID can't be told apart in JSON"),
        (date | datetime, "can't be told apart"),
        (Point | Page, "can't be told apart"),
        (list[int] | set[int], "can't be told apart"),
        (dict[float, int], "a key of an object can't be float"),
        (dict[tuple[int, int], int], "a key of an object can't be"),
        (WithInitVar, "InitVar 'x'"),
        (Endless[int], "holds types without end: use a dataclass"),
        (Box[Annotated[int, []]], "Annotated.* has no hash"),
        (Pairs, "has a value that is tuple"),
        (Literal[b"a"], "has a value that is bytes"),
    ],
)
def test_a_type_that_no_payload_holds_is_refused_at_registration(annotation: Any, text: str) -> None:
    """The text says what to annotate instead, where that is known."""
    with pytest.raises(UnsupportedAnnotationError, match=f"(?s){text}"):
        codec_for(annotation)


def test_the_field_of_a_record_that_no_payload_holds_is_told() -> None:
    """With the record that has it."""

    with pytest.raises(UnsupportedAnnotationError, match=r"in .*_Outer: pathlib\..*Path is no type"):
        codec_for(_Outer)


@dataclass
class _Outer:
    path: Path
