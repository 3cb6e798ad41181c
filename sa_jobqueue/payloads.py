"""Payloads, results and keys as PostgreSQL and every handler can take them, checked before any SQL is sent.

A payload is JSON: what can't come back equal is refused, with its path and what to pass instead. No message here
shows a value, since payloads carry secrets. Neither SQL nor sessions live here.
"""

from __future__ import annotations

import json
import marshal
import math
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sa_jobqueue.errors import PayloadError
from sa_jobqueue.misfits import MisfitError, member, row_advice, short, type_name
from sa_jobqueue.records import DEFAULT_MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable

_DECODE = json.JSONDecoder().raw_decode

#: What a handler or a producer may raise it to.
LARGEST_PAYLOAD_BYTES = 64 * 1024 * 1024
MAX_RESULT_BYTES = 64 * 1024
#: What is told of a result above that, in its place.
RESULT_TOO_LARGE = "result too large"
#: Python itself refuses to read an integer of more than 4,300 digits.
MAX_DIGITS = 4000
_TOO_LONG = 10**MAX_DIGITS
MAX_KEY = 512

#: What raises the limit, unless a message knows better.
LIMIT_SETTING = "max_payload_bytes of enqueue()"
_REFERENCE = "pass a reference (a row's primary key, a file's address) instead of the document itself"
#: The first that fits, so subclasses stand before their bases.
_ADVICE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (Enum, "pass its .value"),
    ((datetime, date, time), "pass its .isoformat()"),
    (timedelta, "pass its .total_seconds()"),
    (UUID, "pass str() of it"),
    (Decimal, "pass str() of it"),
    ((bytes, bytearray, memoryview), "pass base64 text, or a reference to where the bytes are stored"),
    (tuple, "it would come back as a list: pass list() of it"),
    ((set, frozenset), "pass sorted() of it"),
)


_UNKNOWN: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """Stands in a payload for an attribute of a row that the same flush writes; made by `ref()`.

    `value` is there where the row is stored already, `column_type` where the column tells what Python type it has.
    `encode` is that of the field's own type, when it is bound to one.
    """

    target: object
    attribute: str
    value: Any = _UNKNOWN
    column_type: type | None = None
    encode: Callable[[Any], Any] | None = None

    def __repr__(self) -> str:
        return f"ref({type(self.target).__qualname__}.{self.attribute})"

    @property
    def known(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.value is not _UNKNOWN

    def bound_to(self, encode: Callable[[Any], Any]) -> Ref:
        """The same, for a field whose values are written like this."""
        return replace(self, encode=encode)

    def stored(self, value: Any) -> Any:
        """How its value stands in the payload. Raises MisfitError for one that its field can't take."""
        if self.encode is not None:
            return self.encode(value)
        return str(value) if isinstance(value, UUID) else value


class FixedPayload(NamedTuple):
    """A payload as it was when it was checked: later changes of the caller's objects don't reach it.

    `value` is a copy. With `refs` in it, `text` holds null in their places and is good for nothing but its size.
    """

    text: str
    value: Any
    refs: tuple[Ref, ...] = ()


def encode(value: Any, *, limit: int = DEFAULT_MAX_PAYLOAD_BYTES, setting: str = LIMIT_SETTING) -> str:
    """`value` as JSON text that reads back equal to it.

    Raises TypeError for a type that JSON has not, ValueError for a value that PostgreSQL or a reader can't take and
    for more than `limit` bytes of UTF-8, which `setting` raises; both name the JSON path. References must have been
    resolved before.
    """
    fixed = fix(value, limit=limit, setting=setting)
    if fixed.refs:
        raise TypeError(
            "the payload still has a ref() in it: only a job that is added to a Session can have one"
        )
    return fixed.text


def fix(value: Any, *, limit: int = DEFAULT_MAX_PAYLOAD_BYTES, setting: str = LIMIT_SETTING) -> FixedPayload:
    """Check and copy a payload, `ref()` placeholders allowed. Raises as `encode()` does."""
    fixed = _plain(value) or _walked(value)
    if (size := _size(fixed.text)) > limit:
        more = f", or raise {setting}" if limit < LARGEST_PAYLOAD_BYTES else ""
        raise ValueError(
            f"the payload takes {size:,} bytes of JSON, and {limit:,} is the limit: {_REFERENCE}{more}"
        )
    return fixed


def read_stored(text: str) -> Any:
    """A payload as the server writes it: json.loads would first look for space around it.

    Somebody else's SQL may have stored what Python can't read, an integer of 5,000 digits for example. Raising here would
    cost every job of the same claim an attempt, so that one job gets the error in the place of its payload.
    """
    try:
        return _DECODE(text)[0]
    except (ValueError, RecursionError) as error:
        return PayloadError(f"the stored payload can't be read: {error}")


def encode_result(value: Any) -> str | None:
    """A job's result as JSON text, None for None: by the rules of payloads, but for its size.

    The work is done when its result turns out to be larger than `MAX_RESULT_BYTES`, so in its place stands
    `{"dropped": "result too large", "bytes": ...}`. Raises TypeError or ValueError, naming the path, as `encode()` does.
    """
    if value is None:
        return None
    fixed = _plain(value) or _walked(value)
    if fixed.refs:
        raise TypeError("the result has a ref() in it, which stands in payloads alone: give the key itself")
    if (size := _size(fixed.text)) > MAX_RESULT_BYTES:
        return _dump({"dropped": RESULT_TOO_LARGE, "bytes": size})
    return fixed.text


def resolve(value: Any, of: Callable[[Ref], Any]) -> Any:
    """A copy of a checked payload with what `of(ref)` gives in the place of every reference.

    Raises TypeError or ValueError, naming the path, where its field can't take it.
    """
    try:
        return _resolved(value, of)
    except MisfitError as misfit:
        raise misfit.for_caller(f"the payload: {misfit}") from None


def _resolved(value: Any, of: Callable[[Ref], Any]) -> Any:
    if isinstance(value, Ref):
        return value.stored(of(value))
    if isinstance(value, dict):
        return {name: _resolved_at(name, one, of) for name, one in value.items()}
    if isinstance(value, list):
        return [_resolved_at(index, one, of) for index, one in enumerate(value)]
    return value


def _resolved_at(step: str | int, value: Any, of: Callable[[Ref], Any]) -> Any:
    try:
        return _resolved(value, of)
    except MisfitError as misfit:
        raise misfit.within(step) from None


def check_key(argument: str, value: Any) -> str:
    """An idempotency key as a plain str of 1 to 512 characters; TypeError or ValueError name the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: expected a str, got {type_name(type(value))}")
    if not value or value.isspace():
        raise ValueError(f"{argument} is blank: leave it out, or name what must not be done twice")
    if len(value) > MAX_KEY:
        raise ValueError(
            f"{argument} has {len(value):,} characters, and {MAX_KEY} is the limit: pass a hash of it"
        )
    if problem := _text_problem(value):
        raise ValueError(f"{argument} has {problem}")
    return plain_text(value)


def plain_text(value: str) -> str:
    """The text without its subclass: a driver may look an adapter up by type and store the *name* of an Enum."""
    return value if type(value) is str else str.__str__(value)


def integer_problem(value: int) -> str | None:
    """Why an integer can't be in a payload, None for one that can."""
    return (
        f"an integer of more than {MAX_DIGITS:,} digits can't be read back"
        if abs(value) >= _TOO_LONG
        else None
    )


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _dumper() -> Callable[[Any], str]:
    """JSON text of a value that may not be JSON: TypeError or ValueError then.

    `json` makes its encoder anew at each call.
    """
    plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # without json's accelerator
        return plain.encode
    parts = make(None, plain.default, encode_basestring, None, ":", ",", False, False, False)
    return lambda value: "".join(parts(value, 0))


_dump = _dumper()
_load = json.JSONDecoder().decode
_NAMES = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_EXPONENT = re.compile(r"[0-9]e\+")
_LONG = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")


def _suspect(text: str) -> bool:
    """Needs a closer look: a NUL, a float that jsonb would give back as an int, an int too long to be read."""
    # Two looks for a piece of text cost a tenth of one by a pattern.
    return (
        "\\u0000" in text
        or ("e+" in text and _EXPONENT.search(text) is not None)
        or (len(text) > MAX_DIGITS and _LONG.search(text) is not None)
    )


def _plain(value: Any) -> FixedPayload | None:
    """The payload by way of C alone, or None where the slow walk must judge (and name the path).

    What reads back equal has lost nothing: tuples, keys that aren't str and all but JSON's own types differ. Only exact
    types may say so, for a subclass has its own idea of equal; marshal refuses every other, at the speed of C. An object
    of nothing but texts and numbers, as most payloads are, needs no reading back: its types are seen at a glance.
    """
    try:
        if (copy := _flat(value)) is None:
            marshal.dumps(value)
            text = _dump(value)
            if text.count("[") + text.count("{") > MAX_PAYLOAD_DEPTH:
                return None
        else:
            text = _dump(copy)
        if _suspect(text):
            return None
        if not text.isascii():
            text.encode()
        if copy is None and (copy := _load(text)) != value:
            return None
    except (TypeError, ValueError, RecursionError):
        return None
    return FixedPayload(text, copy)


def _flat(value: Any) -> dict[str, Any] | None:
    """A copy of an object that holds texts, numbers, true, false and null alone; None for anything else."""
    if type(value) is not dict:
        return None
    copy = value.copy()
    return (
        copy if _NAMES.issuperset(map(type, copy)) and _SCALARS.issuperset(map(type, copy.values())) else None
    )


def _walked(value: Any) -> FixedPayload:
    parts: list[str] = []
    refs: list[Ref] = []
    copy = _walk(value, "$", 0, parts, refs)
    return FixedPayload("".join(parts), copy, tuple(refs))


def _walk(value: Any, path: str, depth: int, parts: list[str], refs: list[Ref]) -> Any:
    """Append the JSON text of `value` to `parts` and return a copy made of plain types."""
    match value:
        case None | True | False:
            parts.append("null" if value is None else "true" if value else "false")
            return value
        case str():
            copy: Any = plain_text(value)
            if problem := _text_problem(copy):
                raise ValueError(f"{path}: the text has {problem}")
            parts.append(encode_basestring(copy))
        case int():
            copy = int(value)
            if problem := integer_problem(copy):
                raise ValueError(f"{path}: {problem}")
            parts.append(int.__repr__(copy))
        case float():
            copy = float(value)
            parts.append(_float_text(copy, path))
        case list() | dict():
            if depth == MAX_PAYLOAD_DEPTH:
                raise ValueError(
                    f"{short(path)}: nested deeper than {MAX_PAYLOAD_DEPTH} levels, or contains itself"
                )
            copy = (
                _walk_list(value, path, depth + 1, parts, refs)
                if isinstance(value, list)
                else _walk_object(value, path, depth + 1, parts, refs)
            )
        case Ref() if value.known:
            return _walk(value.stored(value.value), path, depth, parts, refs)
        case Ref():
            parts.append("null")
            refs.append(value)
            copy = value
        case _:
            raise TypeError(f"{path}: {type_name(type(value))} is no JSON type: {_advice(value)}")
    return copy


def _walk_list(items: list[Any], path: str, depth: int, parts: list[str], refs: list[Ref]) -> list[Any]:
    copy = []
    separator = "["
    for index, item in enumerate(items):
        parts.append(separator)
        copy.append(_walk(item, f"{path}[{index}]", depth, parts, refs))
        separator = ","
    parts.append("]" if copy else "[]")
    return copy


def _walk_object(
    members: dict[Any, Any], path: str, depth: int, parts: list[str], refs: list[Ref]
) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    separator = "{"
    for name, item in members.items():
        if not isinstance(name, str):
            raise TypeError(
                f"{path}: a key is {type_name(type(name))}, and JSON has only str: pass str() of it"
            )
        if problem := _text_problem(name):
            raise ValueError(f"{member(path, name)}: the key has {problem}")
        plain = plain_text(name)
        parts.append(f"{separator}{encode_basestring(plain)}:")
        copy[plain] = _walk(item, member(path, plain), depth, parts, refs)
        separator = ","
    parts.append("}" if copy else "{}")
    return copy


def _float_text(value: float, path: str) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{path}: {value} is no JSON number: pass None, or text")
    text = float.__repr__(value)
    # jsonb keeps 1e+23 as the integer 10^23, which is another number than the float; with a fraction it stays one.
    return f"{Decimal(text):f}.0" if "e+" in text else text


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "a NUL character, which PostgreSQL can't store: remove it"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "a lone surrogate (half a character), which UTF-8 can't hold: decode the text properly"
    return None


def _advice(value: object) -> str:
    if (advice := row_advice(value)) is not None:
        return advice
    for types, advice in _ADVICE:
        if isinstance(value, types):
            return advice
    if is_dataclass(value) and not isinstance(value, type):
        names = ", ".join(field.name for field in fields(value)[:3])
        return f"pass a dict of its fields ({names})" if names else "pass a dict"
    return "pass what it stands for as str, int, float, bool, None, list or dict"
