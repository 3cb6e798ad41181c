"""What is enqueued arrives equal: every type that a payload can hold, by way of JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.codecs import UnsupportedAnnotationError, codec_for
from sa_jobqueue.codecs.scalars import duration
from sa_jobqueue.payloads import encode
from tests.codecs.examples import (
    AUTUMN,
    ROUND_TRIPS,
    Batch,
    Checked,
    Colour,
    Line,
    Meeting,
    Point,
    Right,
    Tree,
)

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("annotation", "value", "stored"), ROUND_TRIPS)
def test_a_value_comes_back_equal_from_its_stored_form(annotation: Any, value: Any, stored: Any) -> None:
    """The stored form is a promise: later releases read it, and keys are made of it."""
    codec = codec_for(annotation)
    written = codec.encode(value)
    assert json.loads(encode(written)) == stored
    read = codec.decode(json.loads(encode(written)))
    assert read == value
    assert json.dumps(codec.encode(read)) == json.dumps(written)
    if annotation is not float and not isinstance(value, str | int):
        assert type(read) is type(value)


def test_a_float_is_a_float_at_the_run() -> None:
    """Also where an int was passed, as Python allows."""
    assert type(codec_for(float).decode(7)) is float


def test_equal_numbers_are_written_alike() -> None:
    """A key that is made of them is the same."""
    assert repr([codec_for(float).encode(number) for number in (1, 1.0, -0.0, 0)]) == "[1.0, 1.0, 0.0, 0.0]"


LETTERS = "abcdefgh"
WITH_SETS: list[tuple[Any, Any, Any]] = [
    (
        Meeting,
        Meeting(at=WHEN, Who=set(LETTERS), teams=frozenset([frozenset(Colour), frozenset([Colour.RED])])),
        {"at": "2026-01-01T00:00:00Z", "Who": list(LETTERS), "teams": [["blue", "red"], ["red"]]},
    ),
    (pydantic.RootModel[set[str]], pydantic.RootModel[set[str]](set(LETTERS)), list(LETTERS)),
    (Checked[dict[str, set[str]]], Checked({"a": set(LETTERS)}), {"item": {"a": list(LETTERS)}}),
    (Annotated[set[str], pydantic.Field(min_length=1)], set(LETTERS), list(LETTERS)),
    (Batch[str], Batch(set(LETTERS)), {"theItems": list(LETTERS), "range": [0, 1]}),
    (Batch[Any], Batch({"a", None, "b", "c"}), {"theItems": ["a", "b", "c", None], "range": [0, 1]}),
    (Checked[list[float]], Checked([-0.0]), {"item": [0.0]}),
    (Annotated[frozenset[Colour], msgspec.Meta(min_length=1)], frozenset(Colour), ["blue", "red"]),
]


@pytest.mark.parametrize(("annotation", "value", "stored"), WITH_SETS)
def test_equal_models_are_written_alike(annotation: Any, value: Any, stored: Any) -> None:
    """Their own library writes a set in the order of its hashes, which is another in every process."""
    assert repr(codec_for(annotation).encode(value)) == repr(stored)
    assert codec_for(annotation).decode(stored) == value


@pytest.mark.parametrize("fold", [0, 1])
def test_a_model_can_be_enqueued_in_the_hour_that_comes_twice(fold: int) -> None:
    """In which Python calls a time of a zone unequal to the same one with an offset."""
    at = AUTUMN.replace(fold=fold)
    for kind, value in ((Meeting, Meeting(at=at)), (Batch[datetime], Batch({at})), (Opened, Opened([at]))):
        codec = codec_for(kind)
        assert codec.encode(codec.decode(codec.encode(value))) == codec.encode(value)


@dataclass
class Opened:
    at: list[datetime]

    def __post_init__(self) -> None: ...


def test_the_order_of_a_set_does_not_matter() -> None:
    """Keys that are made of it are equal in every process, whatever its hashes are."""
    codec = codec_for(frozenset[str])
    assert codec.encode(frozenset("abcdef")) == codec.encode(frozenset("fedcba")) == list("abcdef")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("PT1H30M", timedelta(hours=1, minutes=30)),
        ("P1D", timedelta(days=1)),
        ("+PT1,5S", timedelta(seconds=1.5)),
        ("-P1DT1S", -timedelta(days=1, seconds=1)),
    ],
)
def test_durations_of_other_writers_are_read(text: str, value: timedelta) -> None:
    """ISO 8601 without years and months, which have no length."""
    assert duration(text) == value


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1.5", "P1Y", "P1M", "PT1.1234567S", "PT-1S", "P9999999999D", "PT1S\n"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        duration(text)


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    (UUID, st.uuids()),
    (datetime, st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3.5))]) | st.none())),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (bytes, st.binary()),
    (Colour, st.sampled_from(Colour)),
    (Right, st.builds(lambda a, b: a | b, st.sampled_from(Right), st.sampled_from(Right))),
    (Point, st.builds(Point, st.integers(), st.floats(allow_nan=False, allow_infinity=False))),
]


@given(st.data())
def test_any_value_of_any_type_comes_back(data: st.DataObject) -> None:
    """Leaves in containers in containers, by way of the text that is stored."""
    annotation, values = data.draw(st.sampled_from(LEAVES))
    for _ in range(data.draw(st.integers(0, 3))):
        shape = data.draw(st.sampled_from(["list", "tuple", "optional", "object", "pair", "digits"]))
        match shape:
            case "list":
                annotation, values = list[annotation], st.lists(values, max_size=3)  # type: ignore[valid-type]
            case "tuple":
                annotation, values = tuple[annotation, ...], st.lists(values, max_size=3).map(tuple)  # type: ignore[valid-type]
            case "optional":
                annotation, values = annotation | None, st.none() | values
            case "object":
                keys = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
                annotation, values = dict[str, annotation], st.dictionaries(keys, values, max_size=3)  # type: ignore[valid-type]
            case "digits":
                annotation, values = dict[int, annotation], st.dictionaries(st.integers(), values, max_size=3)  # type: ignore[valid-type]
            case _:
                annotation, values = tuple[annotation, bool], st.tuples(values, st.booleans())  # type: ignore[valid-type]
    codec, value = codec_for(annotation), data.draw(values)
    assert codec.decode(json.loads(encode(codec.encode(value)))) == value


def test_a_record_may_hold_itself() -> None:
    """One codec for each class, however it is nested."""
    codec = codec_for(Tree)
    tree = Tree(Decimal(0))
    for _ in range(40):
        tree = Tree(Decimal(1), [tree])
    assert codec.decode(codec.encode(tree)) == tree


def test_what_a_class_computes_is_computed_again() -> None:
    """Fields that its constructor does not take are no part of the payload."""
    codec = codec_for(Line)
    assert "length" not in codec.encode(Line(Point(1)))
    assert codec.decode({"start": {"x": 1}}) == Line(Point(1))


@given(st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_of_a_zone_the_offset_stays(moment: datetime) -> None:
    """The same instant, with a fixed offset in the place of the zone's name; also in the hour that comes twice."""
    codec = codec_for(datetime)
    read = codec.decode(codec.encode(moment))
    assert read.astimezone(UTC) == moment.astimezone(UTC)
    assert read.utcoffset() == moment.utcoffset()


def test_in_the_hour_that_comes_twice() -> None:
    """The offset tells which one."""
    assert codec_for(datetime).encode(AUTUMN) == "2026-10-25T02:30:00+01:00"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement came with Python 3.12")
def test_a_type_statement_that_holds_itself_is_refused() -> None:
    """No codec ends there; a dataclass may hold itself."""
    names: dict[str, Any] = {}
    exec("type Json = dict[str, Json] | list[Json] | str | None", names)
    with pytest.raises(UnsupportedAnnotationError, match="holds types without end: use a dataclass"):
        codec_for(names["Json"])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement came with Python 3.12")
def test_a_type_statement_stands_for_what_it_names() -> None:
    """Also a generic one."""
    names: dict[str, Any] = {"UUID": UUID}
    exec("type Ids = list[UUID]\ntype Pair[T] = tuple[T, T]", names)
    value = UUID(int=7)
    assert codec_for(names["Ids"]).encode([value]) == [str(value)]
    assert codec_for(names["Pair"][UUID]).decode([str(value), str(value)]) == (value, value)
