"""What every codec is: a pair of functions, what it expects, and which of JSON's types it writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from sa_jobqueue.misfits import MisfitError, row_advice, type_name
from sa_jobqueue.payloads import Ref

JsonType = Literal["null", "boolean", "number", "text", "array", "object"]
_JSON_TYPES: dict[type, JsonType] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    list: "array",
    dict: "object",
}
EVERY_JSON_TYPE: frozenset[JsonType] = frozenset(_JSON_TYPES.values())


class Codec(ABC):
    """How the values of one annotation become JSON and come back.

    `name` stands in messages; `writes` says which of JSON's types the written form has, so that a union can tell its
    members apart.
    """

    name: str = "any JSON value"
    writes: frozenset[JsonType] = EVERY_JSON_TYPE

    @abstractmethod
    def encode(self, value: Any) -> Any:
        """The value in JSON's types; what it holds is checked as far as the annotation says. Raises MisfitError."""

    @abstractmethod
    def decode(self, value: Any) -> Any:
        """The value that was encoded as this one. Raises MisfitError for JSON that is no such thing."""

    @abstractmethod
    def matches(self, value: object) -> bool:
        """Whether a value is meant for this codec, by its type alone."""

    def takes(self, kind: type) -> bool:
        """Whether values of this class may be encoded; True also where that can't be told."""
        del kind
        return True

    def encode_other(self, value: object) -> Any:
        """What `encode` does with a value of another type: a reference is bound to this codec, all else refused."""
        if not isinstance(value, Ref):
            raise self.refusal(value)
        if value.known:
            return self.encode(value.value)
        if value.column_type is not None and not self.takes(value.column_type):
            raise MisfitError(
                f"ref() is {type_name(value.column_type)} there, expected {self.name}", wrong_type=True
            )
        return value.bound_to(self.encode)

    def refusal(self, value: object) -> MisfitError:
        """A value of another type than expected."""
        advice = row_advice(value)
        told = told_type(value) if advice is None else f"{told_type(value)}: {advice}"
        return MisfitError(f"expected {self.name}, got {told}", wrong_type=True)


def json_type(value: object) -> JsonType | None:
    """Which of JSON's types a value has that was read from JSON."""
    return _JSON_TYPES.get(type(value))


def told_type(value: object) -> str:
    """The type of a value for a message; a class that was passed itself is told as such."""
    return f"the class {value.__qualname__}" if isinstance(value, type) else type_name(type(value))


class Anything(Codec):
    """No annotation, `Any` or `object`: whatever JSON has; `payloads` judges it."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, value: Any) -> Any:
        return value

    def matches(self, value: object) -> bool:
        del value
        return True


ANYTHING = Anything()
