"""What a registry provides to its handlers beside the payload: a session factory, a client, settings; by type.

Not a container: nothing is closed, scoped or wired here. A value is made once per process, and every run gets it.
"""

from __future__ import annotations

import types
import typing
from threading import RLock
from types import NoneType
from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.misfits import is_typed_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_UNMADE: Any = object()


class _Provided:
    def __repr__(self) -> str:
        return "PROVIDED"


#: The default of a handler's parameter that is no field of the payload: the registry provides its type. Type checkers
#: then leave it out of `.call(...)`, and it may be a registry that includes the handler's own which provides it.
#:
#:     @jobs.handler("mail.send")
#:     def send(ctx: JobContext, address: str, client: MailClient = PROVIDED) -> None: ...
PROVIDED: Any = _Provided()


class Provider:
    """One value, there from the beginning or made by a factory when it is first asked for."""

    def __init__(self, cls: Any, value: Any, factory: Callable[[], Any] | None) -> None:
        self._cls = cls
        self._value = value if factory is None else _UNMADE
        self._factory = factory
        self._lock = RLock()
        self._making = False

    def get(self) -> Any:
        """The value. Raises what the factory raises, and TypeError when it makes another type; the next call tries again.

        A factory that asks for its own value, by way of whatever it calls, is a RuntimeError: nobody could make it.
        """
        if self._value is _UNMADE:
            assert self._factory is not None
            with self._lock:
                if self._making:
                    raise RuntimeError(f"provide({told(self._cls)}): its factory needs what it is to make")
                if self._value is _UNMADE:
                    self._making = True
                    try:
                        self._value = of_type(self._cls, self._factory(), "the factory made")
                    finally:
                        self._making = False
        return self._value


class Providers:
    """The providers of one registry, and those of the registries that include it."""

    def __init__(self) -> None:
        self._by_type: dict[Any, Provider] = {}
        self._wider: list[Providers] = []

    def add(self, cls: Any, provider: Provider) -> None:
        """Raises ValueError for a type that is provided already."""
        if cls in self._by_type:
            raise ValueError(f"provide({told(cls)}): it is provided already")
        self._by_type[cls] = provider

    def widen(self, wider: Providers) -> None:
        """Ask these too, after its own: a registry that includes this one."""
        self._wider.append(wider)

    def knows(self, annotation: Any) -> bool:
        """Whether a parameter with this annotation can be filled in."""
        return self._find(annotation, set()) is not None

    def get(self, annotation: Any, instead: Mapping[Any, Any]) -> Any:
        """The value for a parameter with this annotation; what a test gives `instead` goes first.

        Raises ConfigurationError when nobody provides it, and what a factory raises.
        """
        for cls in asked(annotation):
            if cls in instead:
                return instead[cls]
        if (provider := self._find(annotation, set())) is None:
            raise ConfigurationError(f"nobody provides {told(annotation)}: {advice(annotation)}")
        return provider.get()

    def _find(self, annotation: Any, seen: set[int]) -> Provider | None:
        seen.add(id(self))
        for cls in asked(annotation):
            if (own := self._by_type.get(cls)) is not None:
                return own
        for wider in self._wider:
            if id(wider) not in seen and (found := wider._find(annotation, seen)) is not None:  # noqa: SLF001
                return found
        return None


def of_type(cls: Any, value: Any, what: str) -> Any:
    """The value, when it is of the type that it is provided for; TypeError otherwise. A Protocol is not looked into."""
    base = cls.__origin__ if hasattr(cls, "__metadata__") else cls
    base = typing.get_origin(base) or base
    if is_typed_dict(base):
        base = dict
    if isinstance(base, type) and not getattr(base, "_is_protocol", False) and not isinstance(value, base):
        raise TypeError(f"provide({told(cls)}): {what} {type(value).__qualname__}, which is no {told(cls)}")
    return value


def told(annotation: Any) -> str:
    """A type as its author writes it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def advice(annotation: Any) -> str:
    """How a type comes to be provided."""
    return f"jobs.provide({told(annotation)}, ...), on the registry of the handler or one that includes it"


def asked(annotation: Any) -> tuple[Any, ...]:
    """The annotation itself, for `sessionmaker[Session]` and `Annotated` the bare class as well, and for a union each of its members.

    What can't be a key is nobody's.
    """
    try:
        hash(annotation)
    except TypeError:
        return ()
    if hasattr(annotation, "__metadata__"):
        return (annotation, *asked(annotation.__origin__))
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return tuple(cls for one in typing.get_args(annotation) if one is not NoneType for cls in asked(one))
    return (annotation,) if origin is None else (annotation, origin)
