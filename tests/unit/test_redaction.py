"""What is shown of payloads: no secret under a name that says so, and everything else as it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.records import MAX_PAYLOAD_DEPTH
from sa_jobqueue.redaction import REDACTED, SECRET_NAMES, redacted

SECRET = "S3CR3T-42"

#: No text of ours looks like a URL or a setting, no name like a secret's.
TEXTS = st.text(st.characters(exclude_characters="@=", exclude_categories=["Cs"]), max_size=10)
NAMES = st.text("abdf_-", max_size=6)
HARMLESS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@st.composite
def secret_names(draw: st.DrawFn) -> str:
    """One of the words, in any case, cut by separators, within a longer name."""
    word = draw(st.sampled_from(SECRET_NAMES))
    letters = [
        draw(st.sampled_from(("", "_", "-"))) + draw(st.sampled_from((str.upper, str.lower)))(letter)
        for letter in word
    ]
    return draw(NAMES) + "".join(letters) + draw(NAMES)


@st.composite
def with_a_secret(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value that holds a secret at some depth, and what is to be shown of it."""
    secret: Any = draw(st.sampled_from([SECRET, [SECRET], {"a": {"b": SECRET}}, {SECRET: 1}]))
    name, beside = draw(secret_names()), draw(st.dictionaries(NAMES, HARMLESS, max_size=3))
    value, shown = {**beside, name: secret}, {**beside, name: REDACTED}
    for way in draw(st.lists(NAMES | st.none(), max_size=5)):
        around = draw(HARMLESS)
        if way is None:
            value, shown = [around, value], [around, shown]
        else:
            value, shown = {"x": around, way: value}, {"x": around, way: shown}
    return value, shown


@given(with_a_secret())
def test_a_secret_is_never_shown_and_nothing_else_is_changed(case: tuple[Any, Any]) -> None:
    """At any nesting, in any spelling of the name; the value that was given stays as it is."""
    value, expected = case
    before = json.dumps(value)
    shown = redacted(value)
    assert shown == expected
    assert SECRET not in json.dumps(shown)
    assert json.dumps(value) == before


@given(HARMLESS)
def test_what_holds_no_secret_comes_back_equal(value: Any) -> None:
    """Types included."""
    assert json.dumps(redacted(value)) == json.dumps(value)


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "accessToken",
        "X-Api-Key",
        "API_KEY",
        "set-cookie",
        "private_key",
        "db.Password",
        "Credentials",
    ],
)
def test_spellings(name: str) -> None:
    """As headers, settings and code write them."""
    assert redacted({name: SECRET}) == {name: REDACTED}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:PGPW-42@db/app", "postgresql://me:[redacted]@db/app"),
        ("see amqp://u:p@w/x@mq:1/v and go", "see amqp://u:[redacted]@mq:1/v and go"),
        ("host=db password=PGPW-42 user=me", "host=db password=[redacted] user=me"),
        ("https://example.org:8080/a?b=c", "https://example.org:8080/a?b=c"),
        ("mail ada@example.org", "mail ada@example.org"),
    ],
)
def test_passwords_in_texts(text: str, shown: str) -> None:
    """Under whatever name the text stands, and alone."""
    assert redacted(text) == shown
    assert redacted({"a": [text], "b": (text, 1)}) == {"a": [shown], "b": (shown, 1)}


@pytest.mark.parametrize(
    "around", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)]
)
def test_what_is_nested_deeper_than_a_payload_is_hidden(around: Callable[[Any], Any]) -> None:
    """SQL of others may store what Python reads and can't walk: whoever shows it gets an answer all the same."""
    value: Any = 1
    for _ in range(MAX_PAYLOAD_DEPTH):
        value = around(value)
    assert redacted(value) == value
    value = around(value)
    assert SECRET not in (shown := repr(redacted({"b": [SECRET], "c": value}, ["b"])))
    assert REDACTED in shown.partition("'c'")[2]
    for _ in range(3000):
        value = around(value)
    assert repr(redacted(value)).count(REDACTED) == 1


def test_other_names() -> None:
    """Given instead of ours, or beside them."""
    value = {"IBAN": 1, "iban_number": [2], "token": 3}
    assert redacted(value, ["i-ban"]) == {"IBAN": REDACTED, "iban_number": REDACTED, "token": 3}
    assert redacted(value, [*SECRET_NAMES, "iban"]) == dict.fromkeys(value, REDACTED)
    assert redacted(value, []) == value


@pytest.mark.parametrize(
    ("names", "error", "match"),
    [
        ("iban", TypeError, r"write \['iban'\]"),
        ([1], TypeError, "expected texts, got int"),
        (["_-"], ValueError, "would hide every field"),
        ([" "], ValueError, "would hide every field"),
    ],
)
def test_names_that_mean_nothing(names: Any, error: type[Exception], match: str) -> None:
    """A text alone would be taken for its letters, an empty word for all."""
    with pytest.raises(error, match=match):
        redacted({}, names)


def test_a_long_text_takes_no_longer_than_its_length() -> None:
    """Whoever shows a job must not wait for what somebody has put into it."""
    started = time.process_time()
    for text in (
        "@" + "://a:" * 50_000,
        "://a:" * 50_000 + "@",
        "password" * 30_000,
        "=" + " password" * 30_000,
    ):
        redacted(text)
    assert time.process_time() - started < 5
