"""Types of pydantic and msgspec: their own library writes and reads them, and is imported by nobody else.

What it writes is read again at once and compared: so its constraints are checked where the job is enqueued, and what it
would lose (a SecretStr, a field left out of the dump) is refused there.
"""

from __future__ import annotations

import json
import re
import types
import typing
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs.base import EVERY_JSON_TYPE, Codec
from sa_jobqueue.codecs.inside import ordered, same
from sa_jobqueue.misfits import MisfitError, annotation_name, refused_by
from sa_jobqueue.payloads import Ref

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_jobqueue.codecs.base import JsonType

_MOST_TOLD = 5
#: msgspec shows a value like this, and types and fields in backticks.
_SHOWN = re.compile(r"(Invalid (?:enum )?value) .*?(?=$| - at `)", re.DOTALL)
_PLACE = re.compile(r" - at `[^`]*`\Z")
#: What pydantic says of these itself shows something of the value.
_INSTEAD = {"uuid_parsing": "Input should be a valid UUID"}
_PYDANTIC = ("pydantic", "pydantic_core")


class Adapted(Codec):
    """A type that another library writes and reads."""

    def __init__(self, annotation: Any) -> None:
        self.kind: type | None = _class_of(annotation)
        self.name: str = annotation_name(annotation)
        self.writes: frozenset[JsonType] = EVERY_JSON_TYPE

    def encode(self, value: Any) -> Any:
        if isinstance(value, Ref) or not self.matches(value):
            return self.encode_other(value)
        try:
            written = ordered(value, self._write(value))
        except (MisfitError, RecursionError):
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # a serializer of the application's own, or a value that holds itself
            raise refused_by(f"{self.name}: its own dump", error) from None
        if not same(value, self.decode(written)):
            raise MisfitError(
                f"{self.name} comes back from JSON as another value: leave out what its own dump hides or changes"
            )
        return written

    def decode(self, value: Any) -> Any:
        try:
            return self._read(value)
        except (MisfitError, RecursionError):
            raise
        except (Exception, SystemExit) as error:  # a validator of the application's own
            raise refused_by(f"{self.name}: its own code", error) from None

    def matches(self, value: object) -> bool:
        """Without a class to compare the library itself finds out; with one, a subclass could lose its own fields."""
        return self.kind is None or type(value) is self.kind

    def takes(self, kind: type) -> bool:
        return self.kind is None or kind is self.kind

    def _unwritable(self, value: object) -> MisfitError:
        """Its library can't write it: another type, or a field that holds what it isn't annotated with."""
        if self.kind is None:
            return self.refusal(value)
        return MisfitError(f"expected {self.name} that its own dump can write as JSON", wrong_type=True)

    @abstractmethod
    def _write(self, value: Any) -> Any:
        """As its library writes it."""

    @abstractmethod
    def _read(self, value: Any) -> Any:
        """As its library reads it."""


class Pydantic(Adapted):
    """A pydantic model, dataclass or type, or an annotation with a pydantic constraint; by its aliases, as JSON."""

    def __init__(self, annotation: Any) -> None:
        from pydantic import TypeAdapter

        super().__init__(annotation)
        self._adapter = TypeAdapter(annotation)
        if not self._adapter.pydantic_complete:
            raise NameError(f"a type that {self.name} names is not defined")
        if self.kind is not None and hasattr(self.kind, "__pydantic_validator__"):
            root = getattr(self.kind, "__pydantic_root_model__", False)
            self.writes: frozenset[JsonType] = EVERY_JSON_TYPE if root else frozenset(["object"])
        else:
            self.kind: type | None = None  # such as HttpUrl, which takes plain values as well

    def _write(self, value: Any) -> Any:
        from pydantic_core import PydanticSerializationError

        try:
            # For a round trip: without what the model computes, which it computes again.
            return self._adapter.dump_python(
                value, mode="json", by_alias=True, warnings="error", round_trip=True
            )
        except PydanticSerializationError:  # its text shows the value
            raise self._unwritable(value) from None

    def _read(self, value: Any) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            raise _misfit(self.name, error.errors(include_url=False, include_input=False)) from None


class Msgspec(Adapted):
    """A msgspec.Struct, or an annotation with a msgspec constraint."""

    def __init__(self, annotation: Any) -> None:
        super().__init__(annotation)
        self._annotation = annotation
        if self.kind is not None:
            struct: Any = self.kind
            self.writes: frozenset[JsonType] = frozenset(
                ["array" if struct.__struct_config__.array_like else "object"]
            )

    def _write(self, value: Any) -> Any:
        import msgspec

        try:
            return msgspec.to_builtins(value, str_keys=True)
        except (TypeError, ValueError):
            raise self._unwritable(value) from None

    def _read(self, value: Any) -> Any:
        import msgspec

        try:
            return msgspec.convert(value, self._annotation, str_keys=True)
        except msgspec.ValidationError as error:
            if isinstance(own := error.__cause__, Exception):  # of a __post_init__
                place = _PLACE.search(str(error))
                what = f"{self.name}: its own code{place[0] if place else ''}"
                raise refused_by(what, own) from None
            text = _SHOWN.sub(r"\1", str(error))
            raise MisfitError(f"{self.name}: {text}") from None


def owner_of(annotation: Any) -> type[Adapted] | None:
    """The codec class of an annotation that one of these libraries owns; None for every other.

    A class is theirs by what its library has put on it, with arguments as well, an `Annotated` by its metadata, and an
    alias by what it stands for: it may be part of that.
    """
    if type(annotation).__name__ == "TypeAliasType":
        return owner_of(annotation.__value__)
    if (kind := _class_of(annotation)) is not None:
        if hasattr(kind, "__pydantic_validator__") or _home(kind) in _PYDANTIC:
            return Pydantic
        return Msgspec if hasattr(kind, "__struct_config__") else None
    homes = {_home(type(one)) for one in getattr(annotation, "__metadata__", ())}
    if homes & {*_PYDANTIC, "annotated_types"}:
        return Pydantic
    return Msgspec if "msgspec" in homes else None


def _class_of(annotation: Any) -> type | None:
    """The class that it is, or has arguments for."""
    origin = typing.get_origin(annotation)
    plain = annotation if origin is None else origin
    known = isinstance(plain, type) and not hasattr(annotation, "__metadata__")
    return plain if known and plain is not types.UnionType else None


def _home(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _misfit(name: str, errors: Iterable[Any]) -> MisfitError:
    """What pydantic found, without its `input` and `ctx`, which hold values."""
    from pydantic_core.core_schema import ErrorType

    told, known = [], typing.get_args(ErrorType)
    for error in errors:
        text = _INSTEAD.get(error["type"], str(error["msg"]))
        if error["type"] == "union_tag_invalid":
            text = f"expected one of the tags {error['ctx']['expected_tags']}"
        elif isinstance(own := error.get("ctx", {}).get("error"), Exception):
            text = f"its own code raised {type(own).__qualname__}"
        elif error["type"] not in known:  # made by code that may quote what it was given
            text = f"refused as {error['type']}"
        told.append(f"{'.'.join(map(str, error['loc']))}: {text}" if error["loc"] else text)
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return MisfitError(f"{name}: {'; '.join(told[:_MOST_TOLD])}{more}")
