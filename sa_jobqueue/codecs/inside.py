"""What is inside a value that another library writes: to put in order what has none, and to compare what it reads back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Set
from datetime import datetime, time
from typing import Any

_UNKNOWN: Any = object()
#: All else that can be written stays as it is.
_TOUCHED = frozenset([list, tuple, dict, float])


def ordered(value: Any, written: Any) -> Any:
    """The written form of a value, its arrays as lists, and of sets sorted: equal values are then written alike.

    Both are gone through side by side; where a serializer has made something else of the value, its word stands.
    """
    while getattr(value, "__pydantic_root_model__", False):
        value = value.root
    if isinstance(written, list | tuple):
        pairs = zip(_items(value, len(written)), written, strict=True)
        items = [ordered(item, one) if type(one) in _TOUCHED else one for item, one in pairs]
        return sorted(items, key=_text) if isinstance(value, Set) else items
    if isinstance(written, dict):
        members = _members(value, written)
        return {
            name: ordered(members.get(name, _UNKNOWN), one) if type(one) in _TOUCHED else one
            for name, one in written.items()
        }
    return written + 0.0 if type(written) is float else written  # -0.0 and 0.0 are equal


def same(value: Any, read: Any) -> bool:
    """Whether they are equal, but for the name of a time zone, in whose place a reader puts the offset.

    Python calls times of two zones unequal in the hour that comes twice, also where all that they say is the same.
    """
    if value == read:
        return True
    if type(value) is not type(read):
        return False
    if isinstance(value, datetime | time):
        return (
            value.utcoffset() == read.utcoffset()
            and value.replace(tzinfo=None) == read.replace(tzinfo=None)
            and value.tzinfo is not None
        )
    if isinstance(value, list | tuple):
        return len(value) == len(read) and all(map(same, value, read))
    if isinstance(value, Set):
        left = read - value
        return len(value) == len(read) and all(
            any(same(one, other) for other in left) for one in value - read
        )
    if isinstance(value, dict):
        return value.keys() == read.keys() and all(same(one, read[name]) for name, one in value.items())
    fields = _compared(value)
    return fields is not None and same(fields, _compared(read))


def _items(value: Any, count: int) -> list[Any]:
    """As many items as were written, each unknown where the value is no such collection."""
    if isinstance(value, list | tuple | Set):
        items = list(value)
    else:
        items = [getattr(value, name) for name in getattr(value, "__struct_fields__", ())]
        items = [_UNKNOWN] * (count - len(items)) + items  # the tag stands first
    return items if len(items) == count else [_UNKNOWN] * count


def _members(value: Any, written: Mapping[str, Any]) -> dict[str, Any]:
    """The values under the names that they were written by."""
    if isinstance(value, Mapping):
        return dict(zip(written, value.values(), strict=True)) if len(value) == len(written) else {}
    if names := getattr(value, "__struct_encode_fields__", ()):
        return {
            name: getattr(value, field) for name, field in zip(names, value.__struct_fields__, strict=True)
        }
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is None and dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, _UNKNOWN) for field in dataclasses.fields(value)}
    named = {
        field.serialization_alias or field.alias or name: getattr(value, name, _UNKNOWN)
        for name, field in (fields or {}).items()
    }
    return named | (getattr(value, "__pydantic_extra__", None) or {})


def _compared(value: Any) -> dict[str, Any] | None:
    """What the class itself compares; None for a class that says nothing of it."""
    if hasattr(value, "__struct_fields__"):
        names = value.__struct_fields__ if value.__struct_config__.eq else ()
        return {name: getattr(value, name) for name in names} or None
    if dataclasses.is_dataclass(value):
        return {
            field.name: getattr(value, field.name, None)
            for field in dataclasses.fields(value)
            if field.compare
        }
    if hasattr(value, "__pydantic_validator__"):
        return {
            "fields": vars(value),
            "extra": value.__pydantic_extra__,
            "private": value.__pydantic_private__,
        }
    return None


def _text(item: Any) -> str:
    return json.dumps(item, sort_keys=True)
