"""Handlers and their kinds: what an application registers, and what a runner looks up.

    jobs = Registry()

    @jobs.handler("document.embed", queue="ai", max_attempts=8)
    def embed(ctx: JobContext, document_id: int, model: str) -> None: ...

A registry is an object that the application makes; there is no global one. Nothing here knows the database, and
nothing runs a handler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.handlers import Handler, HandlerSettings, HandlerTimeout, make_handler, several
from sa_jobqueue.key_settings import field_names
from sa_jobqueue.names import nearest, passed
from sa_jobqueue.providers import Provider, Providers, of_type, told
from sa_jobqueue.records import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_PAYLOAD_BYTES,
    DEFAULT_PAYLOAD_VERSION,
    DEFAULT_QUEUE,
)
from sa_jobqueue.retry import DEFAULT_RETRY, RetryPolicy
from sa_jobqueue.signature import function_name
from sa_jobqueue.versions import NO_UPCASTERS

if TYPE_CHECKING:
    from sa_jobqueue.periods import Period
    from sa_jobqueue.records import KeyScope, OnConflict

_Fields = ParamSpec("_Fields")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value")

_OMITTED: Any = object()


@dataclass(frozen=True, slots=True)
class _Registration:
    """What `Registry.handler(...)` gives: it turns a function into a registered Handler."""

    registry: Registry
    settings: HandlerSettings

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, _Fields], _Result], /
    ) -> Handler[Concatenate[JobContext, _Fields], _Fields, _Result]: ...

    @overload
    def __call__(self, function: Callable[_Fields, _Result], /) -> Handler[_Fields, _Fields, _Result]: ...

    def __call__(self, function: Any, /) -> Any:
        around = sys._getframe(1).f_locals  # noqa: SLF001  # types that are local to a function are nowhere else
        handler = make_handler(function, self.settings, self.registry._providers, around)  # noqa: SLF001
        self.registry._add(handler)  # noqa: SLF001 - one act in two halves, decorator and registry
        return handler


class Registry:
    """The handlers of an application, by kind. Register at import time; a runner reads it while it runs."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler[..., ..., Any]] = {}
        self._providers = Providers()

    def handler(
        self,
        kind: str,
        *,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        priority: int | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        permanent: Iterable[type[BaseException]] = (),
        aliases: Iterable[str] = (),
        payload_version: int = DEFAULT_PAYLOAD_VERSION,
        upcasters: Mapping[int, Callable[[Any], Any]] = NO_UPCASTERS,
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        unique_by: Iterable[str] | None = None,
        key_scope: KeyScope | Period | None = None,
        on_conflict: OnConflict | None = None,
        timeout: HandlerTimeout = None,
        keep_result: bool = False,
    ) -> _Registration:
        """Register the decorated function for jobs of this kind, and of its `aliases` (former names).

        Parameters annotated JobContext are filled in by the runner; a type checker understands it when the context
        comes first. So are those of a type that the registry provides. The other parameters are the fields of the
        payload, and their annotations say what it may hold: see `sa_jobqueue.codecs`.

        `queue`, `max_attempts`, `priority`, `payload_version`, `max_payload_bytes` (up to 64 MiB), `unique_by`, `key_scope` and
        `on_conflict` go with every `.call(...)`, and mean what they mean in `enqueue()`, whose own arguments win; scope and
        conflict without `unique_by` are for calls that bring a key. Errors of the `permanent` classes are never retried.

        `upcasters={1: from_1_to_2, 2: from_2_to_3}` lets jobs that were enqueued before `payload_version=3` run: each
        function takes the payload (JSON values, a copy) of its version and returns that of the next. One that raises
        is a failure of the attempt, and so is a payload that is older than the first of them. A job of a newer version
        than the handler's is put back for a minute, and that start does not count.

        `timeout` is how long one attempt may run: a timedelta, "never" for no limit, None for what the runner says.
        With `keep_result` what the handler returns is stored as the job's result: JSON by the rules of payloads, up to
        64 KiB (above it a note stands in its place); what can't be stored is a failure of the attempt. Without it the
        value is thrown away, as it is after `ctx.complete(result=...)`. An outcome (`Retry`, `Snooze`, `Discard`) is never
        a result.

        Raises TypeError or ValueError, naming the kind, for settings that can't work and for a kind or alias that
        is taken already.
        """
        if callable(kind):
            raise TypeError(
                f"{function_name(kind)} is registered without a kind: write @....handler('the.kind') above it"
            )
        return _Registration(
            self,
            HandlerSettings(
                kind=kind,
                queue=queue,
                max_attempts=max_attempts,
                priority=priority,
                retry=retry,
                permanent=several(f"handler({kind!r}): permanent", permanent),
                aliases=several(f"handler({kind!r}): aliases", aliases),
                payload_version=payload_version,
                upcasters=upcasters,
                max_payload_bytes=max_payload_bytes,
                unique_by=None if unique_by is None else field_names(unique_by, f"handler({kind!r}): "),
                key_scope=key_scope,
                on_conflict=on_conflict,
                timeout=timeout,
                keep_result=keep_result,
            ),
        )

    @overload
    def provide(self, cls: type[_Value], value: _Value) -> None: ...

    @overload
    def provide(self, cls: type[_Value], *, factory: Callable[[], _Value]) -> None: ...

    def provide(self, cls: Any, value: Any = _OMITTED, *, factory: Callable[[], Any] | None = None) -> None:
        """Give `value` to every handler's parameter that is annotated with this type: a session factory, a client.

            jobs.provide(MailClient, MailClient(url))
            jobs.provide(MailClient, factory=make_client)  # called once per process, when a run first needs it

        Such a parameter is no field of the payload. Provide a type before the handlers that take it, or give their
        parameters the default `PROVIDED`, which type checkers understand as well. Nothing is closed here. Handlers of a
        registry that another one includes are given what either provides.

        Raises TypeError for a value of another type, and ValueError for a type that is provided already or that a handler
        registered earlier takes from its payload.
        """
        if (value is _OMITTED) == (factory is None):
            raise TypeError(f"provide({told(cls)}): pass the value, or factory=, a function that makes it")
        if factory is None:
            of_type(cls, value, "got")
        elif not callable(factory):
            raise TypeError(f"provide({told(cls)}): factory: expected a function, got {passed(factory)}")
        for handler in self.handlers:
            if name := handler.signature.field_of(cls):
                raise ValueError(
                    f"provide({told(cls)}): {name!r} of the handler of {handler.kind!r} is a field of its payload: provide the "
                    "type before the handler is registered"
                )
        self._providers.add(cls, Provider(cls, value, factory))

    def check(self) -> None:
        """Raise ConfigurationError for a handler that could never run; a runner asks at its start."""
        for handler in self.handlers:
            try:
                handler.check()
            except (
                TypeError,
                ValueError,
            ) as error:  # which say where the handler was registered what is wrong
                raise ConfigurationError(str(error)) from error

    def include(self, other: Registry) -> None:
        """Add the handlers that another registry holds now. All or none: raises ValueError for a kind that is taken."""
        new = [handler for handler in other.handlers if handler not in self.handlers]
        for handler in new:
            self._check_free(handler)
        for handler in new:
            self._add(handler)
        other._providers.widen(self._providers)

    def find(self, kind: str) -> Handler[..., ..., Any] | None:
        """The handler of jobs of this kind, by its name or an alias; None when nobody registered it."""
        return self._by_kind.get(kind)

    def nearest(self, kind: str) -> tuple[str, ...]:
        """Registered kinds that an unknown one may be a misspelling of, the best first."""
        return nearest(kind, self._by_kind)

    @property
    def handlers(self) -> tuple[Handler[..., ..., Any], ...]:
        """Every handler once, in the order of registration."""
        return tuple(dict.fromkeys(self._by_kind.values()))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every kind that jobs may have to be run here, aliases included; sorted."""
        return tuple(sorted(self._by_kind))

    @property
    def queues(self) -> tuple[str, ...]:
        """Every queue that a handler's calls go to; sorted."""
        return tuple(sorted({handler.queue for handler in self._by_kind.values()}))

    def __repr__(self) -> str:
        return f"Registry({', '.join(self.kinds)})"

    def _add(self, handler: Handler[..., ..., Any]) -> None:
        self._check_free(handler)
        self._by_kind |= dict.fromkeys(handler.names, handler)

    def _check_free(self, handler: Handler[..., ..., Any]) -> None:
        names = handler.names
        for index, name in enumerate(names):
            holder = handler if name in names[:index] else self._by_kind.get(name)
            if holder is not None:
                raise ValueError(
                    f"handler({handler.kind!r}): the kind {name!r} of {function_name(handler.function)} is taken by "
                    f"{function_name(holder.function)}: choose another name or remove one of the two"
                )
