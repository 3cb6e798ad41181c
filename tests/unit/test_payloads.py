"""Payloads: what comes back equal, what is refused, and by which path."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue import Job, ref
from sa_jobqueue.payloads import (
    Ref,
    check_key,
    encode,
    encode_result,
    fix,
    resolve,
)
from sa_jobqueue.records import DEFAULT_MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH

SECRET = "S3CR3T-42"


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    A = "a"


@dataclass
class Box:
    width: int
    token: str


Pair = namedtuple("Pair", "a b")

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=30,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(json_values)
def test_every_json_value_reads_back_equal(value: Any) -> None:
    """A handler gets what was passed; the copy that the job shows is the same."""
    fixed = fix(value)
    assert json.loads(fixed.text) == value
    assert fixed.value == value


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        "",
        0,
        False,
        2**53 + 1,
        2**63,
        10**30,
        -(10**3999),
        0.1 + 0.2,
        1e-320,
        "\U0001f600",
        nested(MAX_PAYLOAD_DEPTH),
    ],
    ids=repr,
)
def test_values_at_the_edges_are_kept(value: Any) -> None:
    """Numbers of any size are exact, and what is empty or null stays distinguishable."""
    text = encode(value)
    assert json.loads(text) == value
    assert type(json.loads(text)) is type(value)


@pytest.mark.parametrize("value", [1e16, 1e23, -1e308, 1.7976931348623157e308])
def test_a_large_float_is_written_with_a_fraction(value: float) -> None:
    """jsonb would store 1e+23 as an integer, which is another number than the float."""
    text = encode({"f": value, "e": "2e+5"})
    assert "e+" not in text.replace('"2e+5"', "")
    assert json.loads(text) == {"f": value, "e": "2e+5"}
    assert isinstance(json.loads(text)["f"], float)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Level.HIGH, 3),
        (Word.A, "a"),
        ([True, Level.HIGH, Word.A], [True, 3, "a"]),
        ({Word.A: OrderedDict(x=1)}, {"a": {"x": 1}}),
        (
            {"ref to see the slow walk": [Word.A, Level.HIGH, True, 1e16]},
            {"ref to see the slow walk": ["a", 3, True, 1e16]},
        ),
    ],
)
def test_subclasses_are_stored_as_the_plain_value(value: Any, plain: Any) -> None:
    """An enumeration member or a special dict must not decide what a driver sends."""
    fixed = fix(value)
    assert json.loads(fixed.text) == plain == fixed.value


class LyingDict(dict[Any, Any]):
    """Says of itself that it is whatever it is compared with."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class LyingList(list[Any]):
    """As LyingDict."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class LyingTuple(tuple[Any, ...]):
    """As LyingDict."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"a": [value]}])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (LyingDict({1: 2}), "key is int"),
        (LyingDict(x=(1, 2)), r"list\(\)"),
        (LyingList([(1, 2)]), r"list\(\)"),
        (LyingTuple([1]), r"list\(\)"),
    ],
)
def test_a_subclass_is_not_asked_whether_it_is_equal(
    wrap: Callable[[Any], Any], value: Any, says: str
) -> None:
    """Its own `__eq__` could let a tuple or a key that isn't text slip past the check."""
    with pytest.raises(TypeError, match=says):
        encode(wrap(value))


@pytest.mark.parametrize(
    ("value", "error", "path", "says"),
    [
        ({"s": "\0"}, ValueError, "$.s", "NUL"),
        ({"a": [{"b": "x\0y"}]}, ValueError, "$.a[0].b", "NUL"),
        ({"k\0": 1}, ValueError, r"$['k\x00']", "NUL"),
        ({"a": {"b c": "\ud83d"}}, ValueError, "$.a['b c']", "surrogate"),
        ({"\ud83d": 1}, ValueError, r"$['\ud83d']", "surrogate"),
        ({"a": [0, math.nan]}, ValueError, "$.a[1]", "nan"),
        ([math.inf], ValueError, "$[0]", "inf"),
        ({"n": 10**4000}, ValueError, "$.n", "4,000 digits"),
        ({"n": -(10**5000)}, ValueError, "$.n", "4,000 digits"),
        ({1: 100}, TypeError, "$", "key is int"),
        ({"a": {None: 1}}, TypeError, "$.a", "key is NoneType"),
        ({"a": {True: 1}}, TypeError, "$.a", "key is bool"),
        ({"t": (1, 2)}, TypeError, "$.t", "list()"),
        ({"t": [Pair(1, 2)]}, TypeError, "$.t[0]", "list()"),
        ({"t": {1, 2}}, TypeError, "$.t", "sorted()"),
        ({"t": datetime(2026, 1, 1, tzinfo=UTC)}, TypeError, "$.t", ".isoformat()"),
        ({"t": date(2026, 1, 1)}, TypeError, "$.t", ".isoformat()"),
        ({"t": timedelta(1)}, TypeError, "$.t", ".total_seconds()"),
        ({"t": UUID(int=1)}, TypeError, "$.t", "str()"),
        ({"t": Decimal("1.0")}, TypeError, "$.t", "str()"),
        ({"t": b"x"}, TypeError, "$.t", "base64"),
        ({"t": Colour.RED}, TypeError, "$.t", ".value"),
        ({"t": Box(1, SECRET)}, TypeError, "$.t", "width, token"),
        ({"t": Job(kind="k")}, TypeError, "$.t", "primary key, or ref(obj)"),
        ({"t": object()}, TypeError, "$.t", "object is no JSON type"),
    ],
)
def test_what_can_not_be_stored_is_refused_with_its_path(
    value: Any, error: type[Exception], path: str, says: str
) -> None:
    """The caller sees which value it is and what to pass instead, before any SQL."""
    with pytest.raises(error) as caught:
        encode(value)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("depth", [MAX_PAYLOAD_DEPTH + 1, 500, 5000, 100_000])
def test_deep_nesting_is_refused_and_no_recursion_error(depth: int) -> None:
    """A worker must be able to read every payload that was accepted."""
    with pytest.raises(ValueError, match="nested deeper than 100"):
        encode(nested(depth))


def test_a_payload_that_contains_itself_is_refused() -> None:
    """It has no end; the message is about the payload and not about Python's stack."""
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(ValueError, match="contains itself"):
        encode(loop)


def test_the_limit_counts_bytes_of_utf8() -> None:
    """The size at the limit passes, one byte more is refused with both numbers and the advice."""
    assert encode("x" * (DEFAULT_MAX_PAYLOAD_BYTES - 2))
    with pytest.raises(
        ValueError, match=r"262,145 bytes of JSON, and 262,144 is the limit: pass a reference"
    ):
        encode("x" * (DEFAULT_MAX_PAYLOAD_BYTES - 1))
    with pytest.raises(ValueError, match="10 bytes"):
        encode("\U0001f600" * 2, limit=9)


@pytest.mark.parametrize(
    "value",
    [
        [SECRET, b"x"],
        {"token": f"{SECRET}\0"},
        [SECRET * 100_000],
        {"a": SECRET, "b": Box(1, SECRET)},
        [f"{SECRET}\ud800"],
        [Word.A, {SECRET}],
    ],
    ids=range(6),
)
def test_no_message_shows_a_value(value: Any) -> None:
    """Payloads carry secrets, and error texts end up in logs."""
    with pytest.raises((TypeError, ValueError)) as caught:
        encode(value)
    assert SECRET not in str(caught.value)


def test_the_copy_shares_nothing_with_the_original() -> None:
    """A later change of the caller's objects must not reach what is stored."""
    original = {"a": [1, {"b": 2}], "large": 1e16}
    for value in ({"a": [1, {"b": 2}]}, original):
        fixed = fix(value)
        value["a"].append(3)  # type: ignore[attr-defined]
        value["a"][1]["b"] = 9  # type: ignore[index]
        assert fixed.value["a"] == [1, {"b": 2}]


def test_references_are_collected_and_resolved() -> None:
    """Placeholders may stand anywhere as a value; their text is made when they have values."""
    first, second = Job(kind="a"), Job(kind="b")
    fixed = fix({"ids": [ref(first), {"deep": ref(second)}], "x": 1})
    assert [placeholder.target for placeholder in fixed.refs] == [first, second]
    values = {id(first): 7, id(second): 8}
    assert resolve(fixed.value, lambda placeholder: values[id(placeholder.target)]) == {
        "ids": [7, {"deep": 8}],
        "x": 1,
    }
    assert isinstance(fixed.value["ids"][0], Ref)
    with pytest.raises(TypeError, match=r"still has a ref\(\)"):
        encode({"id": ref(first)})


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        ("", ValueError, "blank"),
        (" \t", ValueError, "blank"),
        ("k" * 513, ValueError, "513 characters, and 512"),
        ("a\0", ValueError, "NUL"),
        ("\udc00", ValueError, "surrogate"),
        (7, TypeError, "expected a str, got int"),
        (b"k", TypeError, "expected a str, got bytes"),
    ],
)
def test_unfit_keys_are_refused(key: Any, error: type[Exception], says: str) -> None:
    """A key is compared and indexed by the server: what it can't hold is named by its argument."""
    with pytest.raises(error, match=says) as caught:
        check_key("idempotency_key", key)
    assert str(caught.value).startswith("idempotency_key")


def test_a_key_is_stored_as_plain_text() -> None:
    """A driver may store an Enum member by its name instead of its value."""
    assert type(check_key("idempotency_key", Word.A)) is str
    assert check_key("idempotency_key", "\U0001f600" * 512) == "\U0001f600" * 512


def test_a_result_is_bound_as_a_payload_is_but_never_refused_for_its_size() -> None:
    """None is no result; above 64 KiB a note stands in its place; what no JSON holds is refused with its path."""
    assert encode_result(None) is None
    assert encode_result({"a": [1]}) == '{"a":[1]}'
    assert encode_result("x" * 65_534) == '"' + "x" * 65_534 + '"'
    assert json.loads(str(encode_result("x" * 65_535))) == {"dropped": "result too large", "bytes": 65_537}
    with pytest.raises(TypeError, match=r"^\$\.a: set is no JSON type"):
        encode_result({"a": {1}})
    with pytest.raises(TypeError, match=r"ref\(\) in it"):
        encode_result({"a": Ref(object(), "id")})
