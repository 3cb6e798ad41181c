"""Types that payloads hold, and values of each that have to come back equal."""

from __future__ import annotations

import enum
import typing
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import typing_extensions

T = TypeVar("T")
DocumentId = NewType("DocumentId", int)
ONE = UUID("0191d3c2-7f8e-7a3b-9c4d-5e6f708192a3")
PARIS = ZoneInfo("Europe/Paris")
#: One of two instants with this time on the clock.
AUTUMN = datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(enum.StrEnum):
    ADA = "ada"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    NONE = None
    ONE = 1
    TEXT = "text"


class Label(str, enum.Enum):  # noqa: UP042  # whose str() is another than its value
    A = "a"


class Nothing(enum.Flag):
    NONE = 0


class Shown(enum.Enum):
    A = "a"

    @property
    def value(self) -> str:
        """What a person is shown."""
        return "the letter a"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Line:
    start: Point
    end: Point | None = None
    made_at: datetime = field(default=datetime(2026, 1, 1, tzinfo=UTC), kw_only=True)
    length: float = field(default=0.0, init=False, compare=False)


@dataclass
class Tree:
    value: Decimal
    children: list[Tree] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T
    others: list[T]


@dataclass
class Ids(Box[list[T]], Generic[T]):
    name: str = ""


@dataclass
class TicketIds(Ids[UUID]):
    pass


@dataclass
class Chain:
    next: typing.Self | None = None


@dataclass
class Cleaned:
    name: str

    def __post_init__(self) -> None:
        self.name = self.name.strip()


class Page(NamedTuple):
    number: int
    title: str = ""


class Options(TypedDict):
    model: str
    since: NotRequired[date]


class Tagged(TypedDict, Generic[T]):
    tag: T


class TaggedById(Tagged[UUID]):
    name: str


class Sized(typing_extensions.TypedDict):
    size: typing_extensions.ReadOnly[Decimal]
    unit: NotRequired[str]


class Loose(TypedDict, total=False):
    raw: bytes


class Person(pydantic.BaseModel):
    name: str
    born: date | None = None
    tags: set[str] = set()
    full_name: str = pydantic.Field(default="", alias="fullName")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"


class Square(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


@pydantic.dataclasses.dataclass
class Checked(Generic[T]):
    item: T


class Meeting(pydantic.BaseModel):
    at: datetime
    who: set[str] = pydantic.Field(default=set(), serialization_alias="Who", validation_alias="Who")
    teams: frozenset[frozenset[Colour]] = frozenset()


class Batch(msgspec.Struct, Generic[T], rename="camel"):
    the_items: set[T]
    range: tuple[int, int] = (0, 1)


class Order(msgspec.Struct):
    id: UUID
    total: Decimal
    raw: bytes = b""


class Arrow(msgspec.Struct, tag=True, array_like=True):
    x: int


#: annotation, value, and how the value is stored: a later release has to read what this one writes.
ROUND_TRIPS: list[tuple[Any, Any, Any]] = [
    (int, 2**63, 2**63),
    (int, Level.HIGH, 2),
    (float, 0.1 + 0.2, 0.30000000000000004),
    (float, 7, 7.0),
    (float, -0.0, 0.0),
    (bool, True, True),
    (str, "\U0001f600", "\U0001f600"),
    (str, Name.ADA, "ada"),
    (None, None, None),
    (Any, {"a": [1, None]}, {"a": [1, None]}),
    (object, "anything", "anything"),
    (UUID, ONE, "0191d3c2-7f8e-7a3b-9c4d-5e6f708192a3"),
    (datetime, datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC), "2026-11-30T12:00:00.000001+00:00"),
    (datetime, datetime(1, 1, 1), "0001-01-01T00:00:00"),  # noqa: DTZ001
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=1))), "2026-01-01T00:00:00+00:00:01"),
    (date, date(2026, 2, 28), "2026-02-28"),
    (time, time(23, 59, 59, 999999), "23:59:59.999999"),
    (time, time(1, tzinfo=UTC), "01:00:00+00:00"),
    (timedelta, timedelta(days=3, seconds=4, microseconds=500000), "P3DT4.5S"),
    (timedelta, timedelta(microseconds=-1), "-PT0.000001S"),
    (timedelta, timedelta(), "PT0S"),
    (timedelta, timedelta.max, "P999999999DT86399.999999S"),
    (timedelta, timedelta.min, "-P999999999D"),
    (Decimal, Decimal("1.10"), "1.10"),
    (Decimal, Decimal("-1E+30"), "-1E+30"),
    (bytes, b"\0\xff", "AP8="),
    (bytes, b"", ""),
    (Colour, Colour.RED, "red"),
    (Level, Level.LOW, 1),
    (Name, Name.ADA, "ada"),
    (Right, Right.READ | Right.WRITE, 3),
    (Nothing, Nothing.NONE, 0),
    (Shown, Shown.A, "a"),
    (Mixed, Mixed.NONE, None),
    (Mixed, Mixed.TEXT, "text"),
    (Literal["a", 1, None], "a", "a"),
    (Literal["a", 1, None], None, None),
    (DocumentId, DocumentId(7), 7),
    (Annotated[int, "a note"], 7, 7),
    (list, [1, "a"], [1, "a"]),
    (list[int], [1, 2], [1, 2]),
    (list[UUID], [ONE], [str(ONE)]),
    (Sequence[date], [date(2026, 1, 1)], ["2026-01-01"]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[int, str, Decimal], (1, "a", Decimal(2)), [1, "a", "2"]),
    (tuple[()], (), []),
    (tuple, (1, "a"), [1, "a"]),
    (set[int], {10, 9}, [10, 9]),
    (frozenset[Colour], frozenset(Colour), ["blue", "red"]),
    (Set[str], {"b", "a"}, ["a", "b"]),
    (dict, {"a": 1}, {"a": 1}),
    (dict[str, Any], {"a": [None]}, {"a": [None]}),
    (dict[int, UUID], {-1: ONE}, {"-1": str(ONE)}),
    (dict[str, int], {Label.A: 1}, {"a": 1}),
    (dict[date, int], {date(2026, 1, 1): 1}, {"2026-01-01": 1}),
    (Mapping[Colour, list[date]], {Colour.RED: [date(2026, 1, 1)]}, {"red": ["2026-01-01"]}),
    (int | None, None, None),
    (typing.Optional[datetime], datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),  # noqa: UP045
    (int | float | str, 7, 7),
    (int | float, 2**53 + 1, 2**53 + 1),
    (int | float | None, 7.0, 7.0),
    (int | float | str, "7", "7"),
    (bool | int, True, True),
    (Colour | int, Colour.BLUE, "blue"),
    (list[int] | Point | None, Point(1), {"x": 1, "y": 0.0}),
    (Point, Point(1, 2.5), {"x": 1, "y": 2.5}),
    (
        Line,
        Line(Point(1), Point(2)),
        {"start": {"x": 1, "y": 0.0}, "end": {"x": 2, "y": 0.0}, "made_at": "2026-01-01T00:00:00+00:00"},
    ),
    (
        Tree,
        Tree(Decimal(1), [Tree(Decimal(2))]),
        {"value": "1", "children": [{"value": "2", "children": []}]},
    ),
    (Box[UUID], Box(ONE, [ONE]), {"content": str(ONE), "others": [str(ONE)]}),
    (Ids[UUID], Ids([ONE], [[ONE]]), {"content": [str(ONE)], "others": [[str(ONE)]], "name": ""}),
    (TicketIds, TicketIds([ONE], []), {"content": [str(ONE)], "others": [], "name": ""}),
    (Chain, Chain(Chain()), {"next": {"next": None}}),
    (Cleaned, Cleaned(" a "), {"name": "a"}),
    (Page, Page(1, "a"), {"number": 1, "title": "a"}),
    (TaggedById, {"tag": ONE, "name": "a"}, {"tag": str(ONE), "name": "a"}),
    (Options, {"model": "m1"}, {"model": "m1"}),
    (
        Options,
        {"model": "m1", "since": date(2026, 1, 1)},
        {"model": "m1", "since": "2026-01-01"},
    ),
    (Sized, {"size": Decimal(1)}, {"size": "1"}),
    (Loose, {}, {}),
    (Loose, {"raw": b"a"}, {"raw": "YQ=="}),
    (
        Person,
        Person(name="Ada", born=date(1815, 12, 10), fullName="Ada L."),
        {"name": "Ada", "born": "1815-12-10", "tags": [], "fullName": "Ada L."},
    ),
    (Person | None, None, None),
    (Square, Square(side=2), {"side": 2}),
    (Checked[UUID], Checked(ONE), {"item": str(ONE)}),
    (pydantic.JsonValue, {"a": [1, None]}, {"a": [1, None]}),
    (list[pydantic.JsonValue], [{}], [{}]),
    (list[Person], [Person(name="a")], [{"name": "a", "born": None, "tags": [], "fullName": ""}]),
    (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(), {"kind": "dog"}),
    (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")] | None, None, None),
    (Cat | Dog | None, Cat(), {"kind": "cat", "lives": 9}),
    (Annotated[int, pydantic.Field(gt=0)], 7, 7),
    (pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a"), "https://example.org/a"),
    (Order, Order(ONE, Decimal("1.5"), b"a"), {"id": str(ONE), "total": "1.5", "raw": "YQ=="}),
    (Arrow | None, Arrow(1), ["Arrow", 1]),
    (Batch[UUID], Batch({ONE}), {"theItems": [str(ONE)], "range": [0, 1]}),
    (Annotated[str, msgspec.Meta(max_length=3)], "abc", "abc"),
]
