"""Values with named fields: dataclasses, named tuples and TypedDicts, each an object of its fields."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs.base import Codec
from sa_jobqueue.misfits import MisfitError, type_name
from sa_jobqueue.names import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    CodecOf = Callable[[Any], Codec]


class Record(Codec):
    """A class with fields. What is passed must be of that very class, for a subclass may have more to lose."""

    writes = frozenset(["object"])

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name = type_name(kind)
        self._fields: dict[str, Codec] = {}
        self._required: tuple[str, ...] = ()

    def fill(self, fields: Mapping[str, Codec], required: tuple[str, ...]) -> None:
        """Tell the fields, after the class itself is known: a field may be of this very class."""
        self._fields = dict(fields)
        self._required = required

    def encode(self, value: Any) -> Any:
        if type(value) is not self.kind:
            return self.encode_other(value)
        return self._each(
            {name: getattr(value, name) for name in self._fields}, lambda codec, field: codec.encode(field)
        )

    def decode(self, value: Any) -> Any:
        if type(value) is not dict:
            raise self.refusal(value)
        self._check(value, self._required)
        fields = self._each(value, lambda codec, field: codec.decode(field))
        try:
            return self.kind(**fields)
        except (TypeError, ValueError) as error:  # its own __post_init__ or __new__ has the last word
            raise MisfitError(f"{self.name} refuses these fields") from error

    def matches(self, value: object) -> bool:
        return type(value) is self.kind

    def takes(self, kind: type) -> bool:
        return kind is self.kind

    def _check(self, members: Mapping[Any, Any], required: tuple[str, ...]) -> None:
        for name in required:
            if name not in members:
                raise MisfitError(f"{self.name} lacks {name!r}")
        for name in members:
            if name not in self._fields:
                raise MisfitError(f"{self.name} has no field {name!r}{hint(str(name), self._fields)}")

    def _each(self, members: Mapping[str, Any], step: Callable[[Codec, Any], Any]) -> dict[str, Any]:
        done = {}
        for name, field in members.items():
            try:
                done[name] = step(self._fields[name], field)
            except MisfitError as misfit:
                raise misfit.within(name) from misfit.__cause__
        return done


class Fields(Record):
    """A TypedDict: an ordinary dict with these fields."""

    def encode(self, value: Any) -> Any:
        if type(value) is not dict:
            return self.encode_other(value)
        self._check(value, self._required)
        return self._each(value, lambda codec, field: codec.encode(field))

    def decode(self, value: Any) -> Any:
        if type(value) is not dict:
            raise self.refusal(value)
        self._check(value, self._required)
        return self._each(value, lambda codec, field: codec.decode(field))

    def matches(self, value: object) -> bool:
        return type(value) is dict

    def takes(self, kind: type) -> bool:
        return kind is dict


def is_record(kind: object) -> bool:
    """Whether a class is a dataclass, a named tuple with annotations, or a TypedDict."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or typing.is_typeddict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "__annotations__"))
    )


def new_record(kind: type) -> Record:
    """The codec of such a class, its fields still to be filled in by `fill_record()`."""
    return Fields(kind) if typing.is_typeddict(kind) else Record(kind)


def fill_record(record: Record, codec_of: CodecOf, arguments: Mapping[Any, Any]) -> None:
    """Find out the fields. `arguments` are those of a generic class. Raises TypeError for what can't be kept."""
    kind: Any = record.kind
    annotations = typing.get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        if extra := [name for name, one in annotations.items() if isinstance(one, dataclasses.InitVar)]:
            raise TypeError(
                f"{record.name} has InitVar {extra[0]!r}, which no instance keeps: make it a field of its own"
            )
        fields = [field for field in dataclasses.fields(kind) if field.init]
        names = [field.name for field in fields]
        required = tuple(
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
    elif typing.is_typeddict(kind):
        names = list(annotations)
        required = tuple(
            name for name in names if _is_required(annotations[name], by_class=name in kind.__required_keys__)
        )
    else:
        names = list(kind._fields)
        required = tuple(name for name in names if name not in kind._field_defaults)
    record.fill(
        {name: codec_of(_substituted(annotations.get(name, Any), arguments)) for name in names}, required
    )


def _is_required(annotation: Any, *, by_class: bool) -> bool:
    """What the field itself says goes first: the class has not seen it where its annotations are texts."""
    origin = typing.get_origin(annotation)
    return origin is typing.Required or (by_class and origin is not typing.NotRequired)


def _substituted(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    """The annotation of a field of a generic class, with the arguments in the place of its type variables."""
    if isinstance(annotation, typing.TypeVar):
        return arguments.get(annotation, Any)
    if (variables := getattr(annotation, "__parameters__", ())) and not isinstance(annotation, type):
        return annotation[tuple(arguments.get(variable, Any) for variable in variables)]
    return annotation
