"""Types of pydantic and msgspec: their own library writes and reads them, and is imported by nobody else.

What it writes is read again at once and compared: so its constraints are checked where the job is enqueued, and what it
would lose (a SecretStr, a field left out of the dump) is refused there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs.base import EVERY_JSON_TYPE, Codec
from sa_jobqueue.misfits import MisfitError, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_jobqueue.codecs.base import JsonType

_MOST_TOLD = 5
#: msgspec quotes values like this, and types and fields in backticks.
_QUOTED = re.compile(r" '.*'", re.DOTALL)
_PYDANTIC = ("pydantic", "pydantic_core")


class Adapted(Codec):
    """A type that another library writes and reads."""

    def __init__(self, annotation: Any) -> None:
        self.kind = annotation if isinstance(annotation, type) else None
        self.name = type_name(annotation) if isinstance(annotation, type) else str(annotation)
        self.writes: frozenset[JsonType] = EVERY_JSON_TYPE

    def encode(self, value: Any) -> Any:
        if not self.matches(value):
            return self.encode_other(value)
        written = self._write(value)
        if self.decode(written) != value:
            raise MisfitError(
                f"{self.name} comes back from JSON as another value: leave out what its own dump hides or changes"
            )
        return written

    def decode(self, value: Any) -> Any:
        return self._read(value)

    def matches(self, value: object) -> bool:
        """Without a class to compare the library itself finds out; with one, a subclass could lose its own fields."""
        return self.kind is None or type(value) is self.kind

    def takes(self, kind: type) -> bool:
        return self.kind is None or kind is self.kind

    def _write(self, value: Any) -> Any:
        raise NotImplementedError

    def _read(self, value: Any) -> Any:
        raise NotImplementedError


class Pydantic(Adapted):
    """A pydantic model, dataclass or type, or an annotation with a pydantic constraint; by its aliases, as JSON."""

    def __init__(self, annotation: Any) -> None:
        from pydantic import TypeAdapter

        super().__init__(annotation)
        self._adapter = TypeAdapter(annotation)
        if self.kind is not None and hasattr(self.kind, "__pydantic_validator__"):
            root = getattr(self.kind, "__pydantic_root_model__", False)
            self.writes = EVERY_JSON_TYPE if root else frozenset(["object"])
        else:
            self.kind = None  # such as HttpUrl, which takes plain values as well

    def _write(self, value: Any) -> Any:
        from pydantic_core import PydanticSerializationError

        try:
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        except PydanticSerializationError:  # its text shows the value
            raise self.refusal(value) from None

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
            self.writes = frozenset(["array" if struct.__struct_config__.array_like else "object"])

    def _write(self, value: Any) -> Any:
        import msgspec

        try:
            return msgspec.to_builtins(value, str_keys=True)
        except (TypeError, ValueError):
            raise self.refusal(value) from None

    def _read(self, value: Any) -> Any:
        import msgspec

        try:
            return msgspec.convert(value, self._annotation, str_keys=True)
        except msgspec.ValidationError as error:
            raise MisfitError(f"{self.name}: {_QUOTED.sub('', str(error))}") from None


def owner_of(annotation: Any) -> type[Adapted] | None:
    """The codec class of an annotation that one of these libraries owns; None for every other.

    A class is theirs by what its library has put on it, an `Annotated` by its metadata.
    """
    if isinstance(annotation, type):
        if hasattr(annotation, "__pydantic_validator__") or _home(annotation) in _PYDANTIC:
            return Pydantic
        return Msgspec if hasattr(annotation, "__struct_config__") else None
    homes = {_home(type(one)) for one in getattr(annotation, "__metadata__", ())}
    if homes & {*_PYDANTIC, "annotated_types"}:
        return Pydantic
    return Msgspec if "msgspec" in homes else None


def _home(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _misfit(name: str, errors: Iterable[Any]) -> MisfitError:
    """What pydantic found, without its `input` and `ctx`, which hold values."""
    told = []
    for error in errors:
        text = str(error["msg"])
        if error["type"] == "union_tag_invalid":  # the one text of its own that quotes what it was given
            text = f"expected one of the tags {error['ctx']['expected_tags']}"
        told.append(f"{'.'.join(map(str, error['loc']))}: {text}" if error["loc"] else text)
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return MisfitError(f"{name}: {'; '.join(told[:_MOST_TOLD])}{more}")
