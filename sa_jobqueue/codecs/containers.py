"""Values made of values: arrays, objects with free names, and unions of types that JSON can tell apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs.base import Codec, json_type, told_type
from sa_jobqueue.codecs.scalars import INT
from sa_jobqueue.misfits import MisfitError
from sa_jobqueue.payloads import MAX_DIGITS, integer_problem, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sa_jobqueue.codecs.base import JsonType

_INTEGER = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}")


class Array(Codec):
    """list, and what is written like one: `made_of` says which classes may be passed, `make` what comes back."""

    writes: frozenset[JsonType] = frozenset(["array"])

    def __init__(
        self, name: str, item: Codec, made_of: tuple[type, ...], make: Callable[[list[Any]], Any] | None
    ) -> None:
        self.name: str = f"{name}[{item.name}]"
        self._item = item
        self._made_of = made_of
        self._make = make

    def encode(self, value: Any) -> Any:
        return _each(self._item.encode, value) if self.matches(value) else self.encode_other(value)

    def decode(self, value: Any) -> Any:
        if type(value) is not list:
            raise self.refusal(value)
        items = _each(self._item.decode, value)
        return items if self._make is None else self._make(items)

    def matches(self, value: object) -> bool:
        return isinstance(value, self._made_of)


class Unordered(Array):
    """set and frozenset: the array is sorted by the text of its items, so that equal sets have equal payloads."""

    def encode(self, value: Any) -> Any:
        if not self.matches(value):
            return self.encode_other(value)
        written = {_sort_text(item): item for item in map(self._item.encode, value)}
        if len(written) < len(value):
            raise MisfitError("two items are written alike, and would come back as one")
        return [written[text] for text in sorted(written)]

    def decode(self, value: Any) -> Any:
        try:
            return super().decode(value)
        except TypeError:
            raise MisfitError(f"expected {self.name}, got an item that no set can hold") from None


class Row(Codec):
    """tuple[A, B]: an array of so many items, each by a codec of its own."""

    writes: frozenset[JsonType] = frozenset(["array"])

    def __init__(self, items: Sequence[Codec]) -> None:
        self.name: str = f"tuple[{', '.join(item.name for item in items) or '()'}]"
        self._items = tuple(items)

    def encode(self, value: Any) -> Any:
        if not self.matches(value):
            return self.encode_other(value)
        return self._row([item.encode for item in self._items], value)

    def decode(self, value: Any) -> Any:
        if type(value) is not list:
            raise self.refusal(value)
        return tuple(self._row([item.decode for item in self._items], value))

    def matches(self, value: object) -> bool:
        return isinstance(value, tuple)

    def _row(self, steps: list[Callable[[Any], Any]], values: Sequence[Any]) -> list[Any]:
        if len(values) != len(steps):
            raise MisfitError(f"expected {self.name}, got {len(values)} items")
        return _each(lambda pair: pair[0](pair[1]), zip(steps, values, strict=True))


class Object(Codec):
    """dict with free names: `key` writes a text or is that of int, whose digits are the name."""

    writes: frozenset[JsonType] = frozenset(["object"])

    def __init__(self, key: Codec, value: Codec) -> None:
        self.name: str = f"dict[{key.name}, {value.name}]"
        self._key = key
        self._value = value
        self._digits = key is INT

    def encode(self, value: Any) -> Any:
        if not self.matches(value):
            return self.encode_other(value)
        return self._members(value, self._written, self._value.encode)

    def decode(self, value: Any) -> Any:
        if type(value) is not dict:
            raise self.refusal(value)
        return self._members(value, self._read, self._value.decode)

    def matches(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def _members(
        self, members: Mapping[Any, Any], name: Callable[[Any], Any], step: Callable[[Any], Any]
    ) -> dict[Any, Any]:
        done: dict[Any, Any] = {}
        for key, member in members.items():
            try:
                renamed = name(key)
            except MisfitError as misfit:
                raise MisfitError(f"a key: {misfit.problem}", wrong_type=misfit.wrong_type) from None
            if renamed in done:
                raise MisfitError(
                    f"a key: two are {'read' if type(key) is str else 'written'} alike, and one would be lost"
                )
            try:
                done[renamed] = step(member)
            except MisfitError as misfit:
                raise misfit.within(key if type(key) is str else renamed) from None
        return done

    def _written(self, key: Any) -> str:
        if not self._key.matches(key):
            raise self._key.refusal(key)
        text: Any = self._key.encode(key)
        if not self._digits:
            return plain_text(text)
        if problem := integer_problem(text):
            raise MisfitError(problem)
        return str(int(text))

    def _read(self, name: str) -> Any:
        if not self._digits:
            return self._key.decode(name)
        if not _INTEGER.fullmatch(name):
            raise MisfitError("expected the digits of an int")
        return int(name)


class Union(Codec):
    """One of several types; which one, JSON's own type of the stored value tells, so no two may write the same."""

    def __init__(self, members: Iterable[Codec]) -> None:
        self._members = tuple(members)
        self.name: str = " | ".join(member.name for member in self._members)
        self.writes: frozenset[JsonType] = frozenset().union(*(member.writes for member in self._members))
        self._by_type = {kind: member for member in self._members for kind in member.writes}
        if len(self._by_type) < sum(len(member.writes) for member in self._members):
            raise TypeError(
                f"{self.name} can't be told apart in JSON: use one of them, or a dataclass with a field for each"
            )

    def encode(self, value: Any) -> Any:
        for member in self._members:
            if member.matches(value):
                return member.encode(value)
        return self.encode_other(value)

    def decode(self, value: Any) -> Any:
        kind = json_type(value)
        if kind is None or (member := self._by_type.get(kind)) is None:
            raise self.refusal(value)
        return member.decode(value)

    def matches(self, value: object) -> bool:
        return any(member.matches(value) for member in self._members)

    def takes(self, kind: type) -> bool:
        return any(member.takes(kind) for member in self._members)


def is_key(codec: Codec) -> bool:
    """Whether every value has a text that can name a member of an object."""
    return codec is INT or codec.writes == {"text"}


def _each(step: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    done: list[Any] = []
    try:
        for value in values:
            done.append(step(value))  # noqa: PERF401 - its length is the index of the one that failed
    except MisfitError as misfit:
        raise misfit.within(len(done)) from None
    return done


def _sort_text(item: Any) -> str:
    try:
        return json.dumps(item, sort_keys=True)
    except (TypeError, ValueError):
        raise MisfitError(f"a set can't hold {told_type(item)} here", wrong_type=True) from None
