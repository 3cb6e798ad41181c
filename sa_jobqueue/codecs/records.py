"""Values with named fields: dataclasses, named tuples and TypedDicts, each an object of its fields."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs.base import Codec
from sa_jobqueue.codecs.inside import same
from sa_jobqueue.misfits import MisfitError, is_typed_dict, refused_by, short, type_name
from sa_jobqueue.names import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sa_jobqueue.codecs.base import JsonType

    CodecOf = Callable[[Any], Codec]


class Record(Codec):
    """A class with fields. What is passed must be of that very class, for a subclass may have more to lose."""

    writes: frozenset[JsonType] = frozenset(["object"])

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name: str = type_name(kind)
        self._fields: dict[str, Codec] = {}
        self._required: tuple[str, ...] = ()
        self._read_back = self._compares = False

    def fill(self, fields: Mapping[str, Codec], required: tuple[str, ...]) -> None:
        """Tell the fields, after the class itself is known: a field may be of this very class."""
        self._fields = dict(fields)
        self._required = required
        kind: Any = self.kind
        self._read_back = _has_a_say(kind)
        self._compares = kind.__eq__ is not object.__eq__

    def encode(self, value: Any) -> Any:
        if type(value) is not self.kind:
            return self.encode_other(value)
        try:
            members = {name: getattr(value, name) for name in self._fields}
        except AttributeError as unset:
            raise MisfitError(f"{self.name} lacks {unset.name!r}, which was never set") from None
        written = self._each(members, lambda codec, field: codec.encode(field))
        if self._read_back:
            self._check_reading(value, written)
        return written

    def decode(self, value: Any) -> Any:
        fields = self._read_fields(value)
        try:
            return self.kind(**fields)
        except RecursionError:
            raise
        except (Exception, SystemExit) as error:  # its own __post_init__ or __new__ has the last word
            raise refused_by(f"{self.name} refuses these fields: it", error) from None

    def matches(self, value: object) -> bool:
        return type(value) is self.kind

    def takes(self, kind: type) -> bool:
        return kind is self.kind

    def _check_reading(self, value: Any, written: Any) -> None:
        """Where the class makes something of its fields, what it makes of the written ones has to be the same."""
        try:
            stored = json.loads(json.dumps(written))
        except (TypeError, ValueError):
            return  # a reference, which has no value yet, or what no payload can hold and `payloads` refuses
        read = self.decode(stored)
        if self._compares and not same(value, read):
            raise MisfitError(
                f"{self.name} comes back from JSON as another value: its constructor changes its fields, or does not take all"
            )

    def _read_fields(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise self.refusal(value)
        self._check(value, self._required)
        return self._each(value, lambda codec, field: codec.decode(field))

    def _check(self, members: Mapping[Any, Any], required: tuple[str, ...]) -> None:
        for name in required:
            if name not in members:
                raise MisfitError(f"{self.name} lacks {name!r}")
        for name in members:
            if name not in self._fields:
                raise MisfitError(
                    f"{self.name} has no field {short(repr(name))}{hint(str(name), self._fields)}"
                )

    def _each(self, members: Mapping[str, Any], step: Callable[[Codec, Any], Any]) -> dict[str, Any]:
        done = {}
        for name, field in members.items():
            try:
                done[name] = step(self._fields[name], field)
            except MisfitError as misfit:
                raise misfit.within(name) from None
        return done


class Fields(Record):
    """A TypedDict: an ordinary dict with these fields."""

    def encode(self, value: Any) -> Any:
        if type(value) is not dict:
            return self.encode_other(value)
        self._check(value, self._required)
        return self._each(value, lambda codec, field: codec.encode(field))

    def decode(self, value: Any) -> Any:
        return self._read_fields(value)

    def matches(self, value: object) -> bool:
        return type(value) is dict

    def takes(self, kind: type) -> bool:
        return kind is dict


def _has_a_say(kind: Any) -> bool:
    """Whether an instance may be another than its fields say: its constructor is not the one that Python wrote for it."""
    if not dataclasses.is_dataclass(kind):
        return not _is_generated(kind.__new__)
    return (
        hasattr(kind, "__post_init__")
        or kind.__new__ is not object.__new__
        or not _is_generated(getattr(kind, "__init__", None))
        or any(field.compare and not field.init for field in dataclasses.fields(kind))
    )


def _is_generated(method: Any) -> bool:
    """Dataclasses and named tuples make theirs of a text."""
    return getattr(getattr(method, "__code__", None), "co_filename", "") == "<string>"


def is_record(kind: object) -> bool:
    """Whether a class is a dataclass, a named tuple with annotations, or a TypedDict."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or is_typed_dict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "__annotations__"))
    )


def new_record(kind: type) -> Record:
    """The codec of such a class, its fields still to be filled in by `fill_record()`."""
    return Fields(kind) if is_typed_dict(kind) else Record(kind)


def fill_record(
    record: Record, codec_of: CodecOf, arguments: Mapping[Any, Any], around: Mapping[str, Any]
) -> None:
    """Find out the fields. `arguments` are those of a generic class, `around` are the names around the handler, for a class that
    is local to a function as well. Raises TypeError for what can't be kept, NameError for what is nowhere.
    """
    kind: Any = record.kind
    try:
        annotations = typing.get_type_hints(kind, include_extras=True)
    except NameError:
        annotations = typing.get_type_hints(kind, localns={**around}, include_extras=True)
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
    elif is_typed_dict(kind):
        names = list(annotations)
        required = tuple(
            name for name in names if _is_required(annotations[name], by_class=name in kind.__required_keys__)
        )
    else:
        names = list(kind._fields)
        required = tuple(name for name in names if name not in kind._field_defaults)
    record.fill(
        {
            name: codec_of(_substituted(annotations.get(name, Any), _arguments_of(name, kind, arguments)))
            for name in names
        },
        required,
    )


def _is_required(annotation: Any, *, by_class: bool) -> bool:
    """What the field itself says goes first: the class has not seen it where its annotations are texts."""
    origin = typing.get_origin(annotation)
    return origin is typing.Required or (by_class and origin is not typing.NotRequired)


def _arguments_of(name: str, kind: Any, arguments: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The arguments of the generic class that declares this field: of `kind` itself, or as it names that base."""
    if not is_typed_dict(kind) and name in inspect.get_annotations(kind):
        return arguments
    for base in vars(kind).get("__orig_bases__", kind.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and any(
            name in inspect.get_annotations(owner) for owner in origin.__mro__
        ):
            given = [_substituted(argument, arguments) for argument in typing.get_args(base)]
            variables = getattr(origin, "__parameters__", ())
            return _arguments_of(name, origin, dict(zip(variables, given, strict=False)))
    return arguments


def _substituted(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    """The annotation of a field of a generic class, with the arguments in the place of its type variables."""
    if isinstance(annotation, typing.TypeVar):
        return arguments.get(annotation, Any)
    if (variables := getattr(annotation, "__parameters__", ())) and not isinstance(annotation, type):
        return annotation[tuple(arguments.get(variable, Any) for variable in variables)]
    return annotation
