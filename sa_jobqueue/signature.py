"""How a handler's parameters become the fields of its payload, and a payload becomes the call.

Read once, at registration; a run then only compares names. Whether values are JSON is `payloads`' business.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import PayloadError
from sa_jobqueue.names import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CONTEXT_NAME = re.compile(rf"\b{JobContext.__name__}\b")


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """What a function takes: parameters that the runner fills with the context, and fields of the payload.

    `parameters` is the function's signature without the injected ones.
    """

    function_name: str
    injected: tuple[str, ...]
    parameters: inspect.Signature
    fields: frozenset[str]
    required: tuple[str, ...]
    takes_any_field: bool

    def payload(self, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name; defaults are left out, so that a later default holds for waiting jobs.

        Raises TypeError, as the call itself would, naming the kind and the parameter.
        """
        if not args and kwargs.keys() <= self.fields and all(map(kwargs.__contains__, self.required)):
            return dict(kwargs)  # the usual call, at half the cost of binding
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{kind}: {error}: call it as {self.function_name}{self.parameters}{self._context_hint}"
            ) from None
        payload = dict(bound.arguments)
        if self.takes_any_field:
            *_, rest = self.parameters.parameters
            payload |= payload.pop(rest, {})
        if taken := next((name for name in self.injected if name in payload), None):
            raise TypeError(f"{kind}: {taken!r} is filled in by the runner: leave it out of the call")
        return payload

    def arguments(self, kind: str, context: JobContext, payload: Any) -> dict[str, Any]:
        """The keyword arguments for one run. Raises PayloadError, naming kind and field, when the payload won't fit."""
        arguments: dict[str, Any] = {}
        if self.fields or self.takes_any_field:
            self._check(kind, payload)
            arguments |= payload
        for name in self.injected:
            arguments[name] = context
        return arguments

    @property
    def _context_hint(self) -> str:
        """For who took the parameter's name for what matters: its annotation does."""
        first = next(iter(self.parameters.parameters.values()), None)
        if (
            self.injected
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
                f"{where} is {_json_type(payload)}, but {self.function_name}{self.parameters} takes its fields from an "
                "object: enqueue an object, or take only a JobContext and read ctx.payload"
            )
        for name in self.required:
            if name not in payload:
                raise PayloadError(
                    f"{where} lacks {name!r}, which {self.function_name}{self.parameters} needs: give the parameter a "
                    f"default, so that jobs enqueued without it can run{self._context_hint}"
                )
        refused = self.injected if self.takes_any_field else payload.keys() - self.fields
        for name in sorted(refused):
            if name in payload:
                raise PayloadError(
                    f"{where} has {name!r}, which {self.function_name}{self.parameters} doesn't take"
                    f"{hint(name, self.fields)}: add the parameter, or **fields for whatever comes"
                )


def read_signature(function: Callable[..., Any], where: str) -> HandlerSignature:
    """The signature of a handler function; parameters annotated with JobContext are injected.

    Raises TypeError, beginning with `where`, for parameters that no field of a JSON object can fill: positional-only
    ones and *args.
    """
    name = function_name(function)
    try:
        signature = _signature(function)
    except ValueError:
        raise TypeError(f"{where}: {name} tells no parameters: wrap it in a function with def") from None
    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    injected, own = [], []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            raise TypeError(
                f"{where}: {name} takes {star}{parameter.name} by position only, but payloads have names: "
                "use plain or keyword-only parameters"
            )
        if parameter.kind is not parameter.VAR_KEYWORD and _is_context(parameter.annotation, namespace):
            injected.append(parameter.name)
        else:
            own.append(parameter)
    named = [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
    return HandlerSignature(
        function_name=name,
        injected=tuple(injected),
        parameters=inspect.Signature(own),
        fields=frozenset(parameter.name for parameter in named),
        required=tuple(parameter.name for parameter in named if parameter.default is parameter.empty),
        takes_any_field=len(named) < len(own),
    )


def function_name(function: object) -> str:
    """The dotted name of a function for messages, or the repr of what has none."""
    name = getattr(function, "__qualname__", None)
    return f"{getattr(function, '__module__', '?')}.{name}" if name else repr(function)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations are evaluated when asked for; names that only type checkers import must not end in NameError.
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _is_context(annotation: Any, namespace: dict[str, Any]) -> bool:
    """Whether an annotation means JobContext; `JobContext | None` and a text that can't be resolved count as well."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    if text is not None:
        try:
            annotation = typing.get_type_hints(_Annotated(text), globalns=namespace)["annotation"]
        except Exception:  # evaluating a user's annotation can raise anything; its text is then all there is
            return _CONTEXT_NAME.search(text) is not None
    return annotation is JobContext or JobContext in typing.get_args(annotation)


class _Annotated:
    """A carrier for one annotation in the form that get_type_hints() reads."""

    def __init__(self, text: str) -> None:
        self.__annotations__ = {"annotation": text}


def _json_type(payload: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "an array"}
    return "null" if payload is None else names.get(type(payload), type(payload).__name__)
