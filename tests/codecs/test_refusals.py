"""What does not fit is refused where it is passed, with its path, and where it is read, and no value is shown."""

from __future__ import annotations

import enum
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import pydantic
import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from sqlmodel import Field, SQLModel

from sa_jobqueue.codecs import UnsupportedAnnotationError, codec_for
from sa_jobqueue.misfits import MisfitError
from tests.codecs.examples import Cat, Colour, Dog, Level, Line, Options, Order, Page, Person, Point, Tree

T = TypeVar("T")
SECRET = "S3CR3T-42"


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
    (int | None, SECRET, True, r"expected int \| None, got str"),
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
