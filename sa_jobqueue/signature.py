"""How a handler's parameters become the fields of its payload, and a payload becomes the call.

Read once, at registration; a call then encodes its arguments and a run decodes them, each by the codec of its annotation.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sa_jobqueue.codecs import UnsupportedAnnotationError, codec_for
from sa_jobqueue.codecs.base import ANYTHING, json_type
from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import PayloadError
from sa_jobqueue.misfits import MisfitError, type_name
from sa_jobqueue.names import hint
from sa_jobqueue.providers import PROVIDED, advice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sa_jobqueue.codecs import Codec
    from sa_jobqueue.providers import Providers

_CONTEXT_NAME = re.compile(rf"\b{JobContext.__name__}\b")


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """What a function takes: fields of the payload, each with its codec, and what the runner fills in beside them.

    `contexts` names the parameters that get the context, `provided` those that the registry provides and their types.
    `parameters` is the function's signature without both. `rest` is the codec of whatever else may come, by **fields.
    """

    function_name: str
    contexts: tuple[str, ...]
    provided: Mapping[str, Any]
    parameters: inspect.Signature
    codecs: Mapping[str, Codec]
    rest: Codec | None
    required: tuple[str, ...]
    #: The two halves of each codec, ready to be called: every job goes through here twice.
    _encode: Mapping[str, Callable[[Any], Any]] = field(init=False, repr=False)
    _decode: Mapping[str, Callable[[Any], Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encode", {name: codec.encode for name, codec in self.codecs.items()})
        object.__setattr__(self, "_decode", {name: codec.decode for name, codec in self.codecs.items()})

    def payload(self, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, in JSON's types; without defaults, so that a later one holds for waiting jobs.

        Raises TypeError, as the call itself would, and for a value of another type than its parameter is annotated with;
        ValueError for a value of it that can't be stored. Both name the kind and the path.
        """
        if not args and kwargs.keys() <= self.codecs.keys() and all(map(kwargs.__contains__, self.required)):
            return self._encoded(kind, kwargs)  # the usual call, at half the cost of binding
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{kind}: {error}: call it as {self.function_name}{self.parameters}{self._context_hint}"
            ) from None
        payload = dict(bound.arguments)
        if self.rest is not None:
            *_, rest = self.parameters.parameters
            payload |= payload.pop(rest, {})
        if taken := next((name for name in (*self.contexts, *self.provided) if name in payload), None):
            raise TypeError(f"{kind}: {taken!r} is filled in by the runner: leave it out of the call")
        return self._encoded(kind, payload)

    def arguments(self, kind: str, context: JobContext, payload: Any) -> dict[str, Any]:
        """The keyword arguments for one run, but for what is provided.

        Raises PayloadError, naming kind and path, when the payload won't fit.
        """
        arguments: dict[str, Any] = {}
        name = ""
        if self.codecs or self.rest is not None:
            self._check(kind, payload)
            try:
                decode, other = self._decode, (self.rest or ANYTHING).decode
                for name, value in payload.items():
                    arguments[name] = decode.get(name, other)(value)
            except MisfitError as misfit:
                misfit.within(name)
                failure = PayloadError(f"kind {kind!r}: the payload at {misfit}{self._asked}")
                raise failure.with_traceback(misfit.raised_at) from None
            except RecursionError:
                raise PayloadError(f"kind {kind!r}: the payload is nested too deep") from None
        for name in self.contexts:
            arguments[name] = context
        return arguments

    def written(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Some fields in JSON's types, for a comparison; what no codec takes (a stand-in that equals anything) stays."""
        return {name: _written(self._codec(name), value) for name, value in fields.items()}

    def field_of(self, annotation: Any) -> str | None:
        """The name of a field with this annotation."""
        parameters = self.parameters.parameters
        return next((name for name in self.codecs if parameters[name].annotation == annotation), None)

    def _encoded(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        encoded, name = {}, ""
        try:
            encode, other = self._encode, (self.rest or ANYTHING).encode
            for name, value in payload.items():
                encoded[name] = encode.get(name, other)(value)
        except MisfitError as misfit:
            raise misfit.within(name).for_caller(f"{kind}: {misfit}{self._asked}") from None
        except RecursionError:
            raise ValueError(f"{kind}: {name!r} is nested too deep, or contains itself") from None
        return encoded

    def _codec(self, name: str) -> Codec:
        return self.codecs.get(name) or self.rest or ANYTHING

    @property
    def _asked(self) -> str:
        return f" ({self.function_name}{self.parameters})"

    @property
    def _context_hint(self) -> str:
        """For who took the parameter's name for what matters: its annotation does."""
        first = next(iter(self.parameters.parameters.values()), None)
        if (
            self.contexts
            or first is None
            or first.annotation is not first.empty
            or first.name not in self.required
        ):
            return ""
        return f"; if {first.name!r} is meant for the runner's context, write {first.name}: {JobContext.__name__}"

    def _check(self, kind: str, payload: Any) -> None:
        where = f"kind {kind!r}: the payload"
        if not isinstance(payload, dict):
            raise PayloadError(
                f"{where} is {_told_json(payload)}, but {self.function_name}{self.parameters} takes its fields from an "
                "object: enqueue an object, or take only a JobContext and read ctx.payload"
            )
        for name in self.required:
            if name not in payload:
                raise PayloadError(
                    f"{where} lacks {name!r}, which {self.function_name}{self.parameters} needs: give the parameter a "
                    f"default, so that jobs enqueued without it can run{self._context_hint}"
                )
        refused = (
            payload.keys() - self.codecs.keys() if self.rest is None else (*self.contexts, *self.provided)
        )
        for name in sorted(refused):
            if name in payload:
                raise PayloadError(
                    f"{where} has {name!r}, which {self.function_name}{self.parameters} doesn't take"
                    f"{hint(name, self.codecs)}: add the parameter, or **fields for whatever comes"
                )


class SignatureReader:
    """The signature of one handler function, read when it is first asked for: a type of it may be defined further down."""

    def __init__(
        self, function: Callable[..., Any], where: str, providers: Providers, names: Mapping[str, Any]
    ) -> None:
        """`names` are those around the definition, for types that are local to a function."""
        self._function = function
        self._where = where
        self._providers = providers
        self._read: HandlerSignature | None = None
        try:
            self._read = self._from(names)
        except NameError:
            return  # once the module is complete it may be there

    @property
    def is_read(self) -> bool:
        """Whether all names of the annotations have been found."""
        return self._read is not None

    @property
    def signature(self) -> HandlerSignature:
        """Raises TypeError for an annotation whose names are nowhere."""
        if self._read is None:
            try:
                self._read = self._from({})
            except NameError as error:
                raise TypeError(
                    f"{self._where}: the annotations of {function_name(self._function)} can't be read, for {error}: import "
                    "that type at run time, outside of `if TYPE_CHECKING:`"
                ) from None
        return self._read

    def _from(self, names: Mapping[str, Any]) -> HandlerSignature:
        return _signature_of(self._function, self._where, self._providers, names)


def _signature_of(
    function: Callable[..., Any], where: str, providers: Providers, names: Mapping[str, Any]
) -> HandlerSignature:
    """Raises TypeError, beginning with `where`, for parameters that no field of a JSON object can fill: positional-only
    ones, *args, and types that no payload holds; NameError for an annotation that can't be resolved.
    """
    name = function_name(function)
    try:
        signature = _inspected(function)
    except ValueError:
        raise TypeError(f"{where}: {name} tells no parameters: wrap it in a function with def") from None
    namespace = getattr(_code_of(function), "__globals__", {})
    contexts: list[str] = []
    provided: dict[str, Any] = {}
    codecs: dict[str, Codec] = {}
    rest: Codec | None = None
    own: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            raise TypeError(
                f"{where}: {name} takes {star}{parameter.name} by position only, but payloads have names: "
                "use plain or keyword-only parameters"
            )
        many = parameter.kind is parameter.VAR_KEYWORD
        if not many and _is_context(parameter.annotation, namespace):
            contexts.append(parameter.name)
            continue
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        annotation = _resolved(annotation, namespace, names)
        if parameter.default is PROVIDED or (not many and providers.knows(annotation)):
            provided[parameter.name] = annotation
            continue
        own.append(
            parameter.replace(annotation=annotation)
            if parameter.annotation is not parameter.empty
            else parameter
        )
        codec = _codec_of(annotation, names, f"{where}: {parameter.name!r} of {name}")
        if many:
            rest = codec
        else:
            codecs[parameter.name] = codec
    return HandlerSignature(
        function_name=name,
        contexts=tuple(contexts),
        provided=provided,
        parameters=inspect.Signature(own),
        codecs=codecs,
        rest=rest,
        required=tuple(one.name for one in own if one.name in codecs and one.default is one.empty),
    )


def _written(codec: Codec, value: Any) -> Any:
    try:
        return codec.encode(value)
    except MisfitError:
        return value


def _codec_of(annotation: Any, names: Mapping[str, Any], where: str) -> Codec:
    try:
        return codec_for(annotation, names)
    except UnsupportedAnnotationError as error:
        raise TypeError(
            f"{where}: {error}. If it is no field of the payload, provide it: {advice(annotation)}, before this handler, "
            "or give the parameter the default PROVIDED"
        ) from None


def _code_of(function: Any) -> Any:
    """The function whose code is run: what a partial or a decorator wraps, of a callable object the method."""
    while (inner := _inside(function)) is not None:
        function = inner
    return function if hasattr(function, "__globals__") else inspect.unwrap(type(function).__call__)


def _inside(function: object) -> Any:
    """What a partial or a decorator wraps, None for a function that is its own."""
    return (
        function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)
    )


def function_name(function: object) -> str:
    """The dotted name of a function for messages, and of the class for an object without one: never what it holds."""
    while not hasattr(function, "__qualname__") and (inner := _inside(function)) is not None:
        function = inner
    if name := getattr(function, "__qualname__", None):
        return f"{getattr(function, '__module__', '?')}.{name}"
    return type_name(type(function)) if callable(function) else repr(function)


def _inspected(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations are evaluated when asked for; names that only type checkers import must not end in NameError.
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _is_context(annotation: Any, namespace: dict[str, Any]) -> bool:
    """Whether an annotation means JobContext; `JobContext | None` and a text that can't be resolved count as well."""
    try:
        annotation = _resolved(annotation, namespace, {})
    except NameError:
        return _CONTEXT_NAME.search(_text(annotation) or "") is not None
    return annotation is JobContext or JobContext in typing.get_args(annotation)


def _resolved(annotation: Any, namespace: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    """The annotation with its names looked up. Raises NameError, also for what evaluating somebody's text may raise."""
    text = _text(annotation)
    carrier = _Annotated(annotation if text is None else text)
    try:
        hints = typing.get_type_hints(carrier, dict(namespace), {**names}, include_extras=True)
    except NameError:
        raise
    except Exception as error:
        raise NameError(f"{text or annotation!r} raises {type(error).__name__}") from error
    return hints["annotation"]


def _text(annotation: Any) -> str | None:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    return text if isinstance(text, str) else None


class _Annotated:
    """A carrier for one annotation in the form that get_type_hints() reads."""

    def __init__(self, annotation: Any) -> None:
        self.__annotations__ = {"annotation": annotation}


def _told_json(payload: object) -> str:
    kind = json_type(payload) or type(payload).__name__
    return kind if kind == "null" else f"{'an' if kind == 'array' else 'a'} {kind}"
