"""From an annotation to its codec. A new type that payloads can hold is added here, or to `scalars.SCALARS`."""

from __future__ import annotations

import collections.abc
import types
import typing
from enum import Enum
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs.adapters import Adapted, owner_of
from sa_jobqueue.codecs.base import ANYTHING, Codec
from sa_jobqueue.codecs.containers import Array, Object, Row, Union, Unordered, is_key
from sa_jobqueue.codecs.records import Record, fill_record, is_record, new_record
from sa_jobqueue.codecs.scalars import FLOAT, INT, NUMBER, SCALARS, TEXT, Constants, Members
from sa_jobqueue.misfits import annotation_name, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NO_NAMES: Mapping[str, Any] = types.MappingProxyType({})
_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_SETS = (set, collections.abc.Set, collections.abc.MutableSet)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_UNHASHABLE = "what stands in its Annotated[...] has no hash"
_WRAPPERS = (typing.Required, typing.NotRequired, typing.Final)


class UnsupportedAnnotationError(TypeError):
    """A type of which no payload can hold a value; the text says what to annotate instead."""


def codec_for(annotation: Any, names: Mapping[str, Any] = _NO_NAMES) -> Codec:
    """The codec of an annotation whose names are resolved; those in the fields of local classes may be among `names`.

    Raises UnsupportedAnnotationError, and NameError for a name within it that is nowhere.
    """
    try:
        return _Reader(names).read(annotation)
    except RecursionError:
        raise UnsupportedAnnotationError(
            f"{annotation} holds types without end: use a dataclass for what holds itself, or annotate Any"
        ) from None


class _Reader:
    """One reading; it remembers the records it is in, for a record may hold itself."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._records: dict[Any, Record] = {}
        self._within: list[Record] = []

    def read(self, annotation: Any) -> Codec:
        annotation = _unwrapped(annotation)
        if hasattr(
            annotation, "__mapper__"
        ):  # before all else: it may be a dataclass or a pydantic model as well
            raise UnsupportedAnnotationError(
                f"{type_name(annotation)} is a mapped class, whose objects belong to a session: take its primary key and "
                "load it in the handler"
            )
        if (owner := owner_of(annotation)) is not None:
            return _checked(lambda: owner(annotation))
        if annotation in (Any, object):
            return ANYTHING
        if annotation is typing.Self and self._within:
            return self._within[-1]
        origin = typing.get_origin(annotation)
        if origin is None:
            return self._class(annotation)
        return self._generic(annotation, origin, typing.get_args(annotation))

    def _class(self, kind: Any) -> Codec:
        if (codec := SCALARS.get(kind) if isinstance(kind, type | None) else None) is not None:
            return codec
        if isinstance(kind, type) and issubclass(kind, Enum):
            return _checked(lambda: Members(kind))
        if isinstance(kind, type) and is_record(kind):
            return self._record(kind, kind, ())
        if kind in (tuple, frozenset, *_LISTS, *_SETS, *_OBJECTS):
            return self._generic(kind, kind, ())
        raise UnsupportedAnnotationError(_refusal(kind))

    def _generic(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Codec:
        if origin in (typing.Union, types.UnionType):
            return self._union(annotation, arguments)
        if origin is typing.Literal:
            return _checked(lambda: Constants(arguments))
        if origin is tuple and arguments[1:] != (Ellipsis,) and annotation is not tuple:
            return Row([self.read(argument) for argument in arguments])
        if origin is tuple:
            return Array("tuple", self._item(arguments), (tuple,), tuple)
        if origin is frozenset:
            return Unordered("frozenset", self._item(arguments), (frozenset,), frozenset)
        if origin in _SETS:
            return Unordered(
                "set", self._item(arguments), (set, frozenset) if origin is not set else (set,), set
            )
        if origin in _LISTS:
            return Array("list", self._item(arguments), (list,) if origin is list else (list, tuple), None)
        if origin in _OBJECTS:
            return self._object(arguments)
        if is_record(origin):
            return self._record(annotation, origin, arguments)
        raise UnsupportedAnnotationError(_refusal(annotation))

    def _item(self, arguments: tuple[Any, ...]) -> Codec:
        return self.read(arguments[0]) if arguments else ANYTHING

    def _object(self, arguments: tuple[Any, ...]) -> Codec:
        key, value = map(self.read, arguments) if arguments else (TEXT, ANYTHING)
        if key is ANYTHING:
            key = TEXT
        if not is_key(key):
            raise UnsupportedAnnotationError(
                f"a key of an object can't be {key.name}: use str, int, UUID, date or an Enum of texts"
            )
        return Object(key, value)

    def _union(self, annotation: Any, arguments: tuple[Any, ...]) -> Codec:
        members = [self.read(argument) for argument in arguments]
        if ANYTHING in members:
            return ANYTHING
        if INT in members and FLOAT in members:
            members = [member for member in members if member not in (INT, FLOAT)] + [NUMBER]
        if len(members) == 1:
            return members[0]
        try:
            return Union(members)
        except TypeError as overlap:
            # A library tells types of its own apart, by tags or by their fields.
            owners = [type(member) for member in members if isinstance(member, Adapted)]
            if not owners:
                raise UnsupportedAnnotationError(str(overlap)) from None
            return _checked(lambda: owners[0](annotation))

    def _record(self, annotation: Any, kind: type, arguments: tuple[Any, ...]) -> Codec:
        try:
            if (known := self._records.get(annotation)) is not None:
                return known
        except TypeError:
            raise UnsupportedAnnotationError(
                f"{annotation} can't be told from others: {_UNHASHABLE}"
            ) from None
        record = self._records[annotation] = new_record(kind)
        variables = getattr(kind, "__parameters__", ())
        try:
            self._within.append(record)
            fill_record(record, self.read, dict(zip(variables, arguments, strict=False)), self._names)
        except UnsupportedAnnotationError as error:
            raise UnsupportedAnnotationError(f"in {type_name(kind)}: {error}") from None
        except TypeError as error:
            raise UnsupportedAnnotationError(str(error)) from None
        finally:
            self._within.pop()
        return record


def _unwrapped(annotation: Any) -> Any:
    """The annotation without NewType, aliases, Required and the like, and without what others say in `Annotated`."""
    while True:
        origin = typing.get_origin(annotation)
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif _is_alias(annotation) and owner_of(annotation) is None:
            annotation = annotation.__value__
        elif _is_alias(origin):
            annotation = origin.__value__[typing.get_args(annotation)]
        elif hasattr(annotation, "__metadata__") and owner_of(annotation) is None:
            annotation = annotation.__origin__
        elif origin in _WRAPPERS or _is_read_only(origin):
            (annotation,) = typing.get_args(annotation)
        else:
            return annotation


def _is_alias(annotation: Any) -> bool:
    """Made by the `type` statement of Python 3.12, or by typing_extensions."""
    return type(annotation).__name__ == "TypeAliasType"


def _is_read_only(origin: Any) -> bool:
    return getattr(origin, "_name", "") == "ReadOnly"


def _checked(make: Callable[[], Codec]) -> Codec:
    try:
        return make()
    except NameError:
        raise
    except Exception as error:  # an adapted library has its own classes for a type that it can't take
        raise UnsupportedAnnotationError(str(error)) from None


def _refusal(annotation: Any) -> str:
    name = annotation_name(annotation)
    if hasattr(annotation, "__attrs_attrs__"):
        return (
            f"{name} is an attrs class, which no codec knows: use a dataclass, or a pydantic or msgspec model"
        )
    return f"{name} is no type that a payload can hold"
