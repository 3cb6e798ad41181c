"""One handler: the settings it was registered with, checked, and its function, ready to be called for a job.

Who holds which handler is `registry`'s business; running one is the runner's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, TypeVar

from sa_jobqueue import arguments
from sa_jobqueue.callables import is_async, takes
from sa_jobqueue.context import JobContext
from sa_jobqueue.durations import SHORTEST_TIMEOUT, check_setting
from sa_jobqueue.errors import ConfigurationError, PayloadError
from sa_jobqueue.key_settings import check_on_conflict, check_scope
from sa_jobqueue.names import check_name, hint
from sa_jobqueue.periods import Period
from sa_jobqueue.providers import Providers, advice, asked
from sa_jobqueue.records import HandlerCall
from sa_jobqueue.retry import Decision, RetryPolicy, decide
from sa_jobqueue.signature import HandlerSignature, SignatureReader, function_name
from sa_jobqueue.versions import Upcasters, read_upcasters, upcast

if TYPE_CHECKING:
    from sa_jobqueue.records import ClaimedJob, KeyScope, OnConflict

_Direct = ParamSpec("_Direct")  # the function's own parameters
_Fields = ParamSpec("_Fields")  # the same without a leading JobContext: what a call's payload holds
_Result = TypeVar("_Result")

_NOTHING: Mapping[Any, Any] = MappingProxyType({})

#: How long one attempt may run: so long, as long as it likes ("never"), or None for what the runner says.
HandlerTimeout = timedelta | Literal["never"] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandlerSettings:
    """What a handler is registered with; `Registry.handler()` has the defaults.

    Raises TypeError or ValueError, naming the kind and the setting, for what can't work.
    """

    kind: str
    queue: str
    max_attempts: int
    priority: int | None
    retry: RetryPolicy
    permanent: tuple[type[BaseException], ...]
    aliases: tuple[str, ...]
    payload_version: int
    upcasters: Upcasters
    max_payload_bytes: int
    unique_by: tuple[str, ...] | None
    key_scope: KeyScope | Period | None
    on_conflict: OnConflict | None
    timeout: HandlerTimeout
    keep_result: bool

    def __post_init__(self) -> None:
        where = f"handler({check_name('handler(kind)', self.kind)!r})"
        check_name(f"{where}: queue", self.queue)
        arguments.max_attempts(self.max_attempts, f"{where}: max_attempts")
        if self.priority is not None:
            arguments.priority(self.priority, f"{where}: priority")
        arguments.payload_version(self.payload_version, f"{where}: payload_version")
        object.__setattr__(self, "upcasters", read_upcasters(where, self.upcasters, self.payload_version))
        arguments.max_payload_bytes(self.max_payload_bytes, f"{where}: max_payload_bytes")
        _check_key_settings(where, self)
        _check_policy(f"{where}: retry", self.retry)
        _check_timeout(f"{where}: timeout", self.timeout)
        if not isinstance(self.keep_result, bool):
            raise TypeError(f"{where}: keep_result={self.keep_result!r}: expected True or False")
        for cls in self.permanent:
            _check_exception_class(f"{where}: permanent", cls)
        for alias in self.aliases:
            check_name(f"{where}: aliases", alias)

    @property
    def names(self) -> tuple[str, ...]:
        """The kind and its aliases."""
        return (self.kind, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handler(HandlerSettings, Generic[_Direct, _Fields, _Result]):
    """A registered function: still callable as itself, and the maker of typed calls to enqueue.

    `is_async` says whether calling it gives a coroutine.
    """

    function: Callable[_Direct, _Result]
    is_async: bool
    _reader: SignatureReader = field(repr=False)
    _providers: Providers = field(repr=False)

    @property
    def signature(self) -> HandlerSignature:
        """What the function takes. Raises TypeError for an annotation that can't be resolved."""
        return self._reader.signature

    @property
    def _sa_instance_state(self) -> NoReturn:
        # What session.add() asks for, as of a call.
        raise TypeError(
            f"expected a Job from enqueue(), got the handler of {self.kind!r}: write enqueue({self._name}.call(...)), with "
            "the arguments of the function"
        )

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", "handler")

    def __call__(self, /, *args: _Direct.args, **kwargs: _Direct.kwargs) -> _Result:
        """Call the function itself, here and now: no job, no retry."""
        try:
            return self.function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # it was not entered
                error.add_note(
                    f"this calls the function itself: write enqueue({self._name}.call(...)) for a job, or in a test "
                    f"perform({self._name}.call(...)) for one run"
                )
            raise

    def call(self, /, *args: _Fields.args, **kwargs: _Fields.kwargs) -> HandlerCall:
        """A call to hand to `enqueue()`: the arguments without the context, and this handler's settings.

        Defaults of parameters aren't stored, so that a waiting job gets the default of the code that runs it. Raises
        TypeError for arguments that the function doesn't take, or of another type than it is annotated with, and
        ValueError for what can't be stored; both name kind and path, and never the value.
        """
        return HandlerCall(
            kind=self.kind,
            payload=self.signature.payload(self.kind, args, kwargs),
            queue=self.queue,
            max_attempts=self.max_attempts,
            priority=self.priority,
            payload_version=self.payload_version,
            max_payload_bytes=self.max_payload_bytes,
            unique_by=self.unique_by,
            key_scope=self.key_scope,
            on_conflict=self.on_conflict,
            handler=self,
        )

    def bind_job(
        self, context: JobContext, job: ClaimedJob, provide: Mapping[Any, Any] = _NOTHING
    ) -> Callable[[], _Result]:
        """The run of a claimed job: its payload as of this handler's version, shown by the context, and bound.

        Raises PayloadError where the payload can't be read, brought to this version or bound; what an upcaster says by
        Settle passes.
        """
        if isinstance(job.payload, PayloadError):
            raise job.payload
        payload = upcast(self.kind, job.payload, job.payload_version, self.payload_version, self.upcasters)
        if payload is not job.payload:
            context.show_payload(payload)
        return self.bind(context, payload, provide)

    def bind(
        self, context: JobContext, payload: Any, provide: Mapping[Any, Any] = _NOTHING
    ) -> Callable[[], _Result]:
        """The run of one job, ready to be called once: fields of the payload become keyword arguments.

        A handler without parameters of its own takes any payload. `provide` holds by type what a test gives in the place
        of what the registry provides. Raises PayloadError, naming kind and path, when the payload doesn't fit, and what
        a factory of the registry raises.
        """
        signature = self.signature
        given = signature.arguments(self.kind, context, payload)
        for name, annotation in signature.provided.items():
            given[name] = self._providers.get(annotation, provide)
        run: Callable[..., _Result] = self.function
        return functools.partial(run, **given) if given else run

    def check(self) -> None:
        """Raise TypeError, ValueError or ConfigurationError for what would fail every run or call.

        An annotation that can't be read, a field of unique_by that isn't there, a provider that is missing.
        """
        _check_fields(self, self.signature)
        for name, annotation in self.signature.provided.items():
            if not self._providers.knows(annotation):
                raise ConfigurationError(
                    f"handler({self.kind!r}): nobody provides {name!r} of {function_name(self.function)}: "
                    f"{advice(annotation)}"
                )

    def is_given(self, kind: Any) -> bool:
        """Whether what is provided for this type has a place: a parameter of the function, or in a registry around it."""
        return self._providers.knows(kind) or any(
            kind in asked(annotation) for annotation in self.signature.provided.values()
        )

    def decide(self, attempt: int, error: BaseException) -> Decision:
        """What becomes of a failed attempt: nothing more for a permanent error, else what the policy says."""
        if isinstance(error, self.permanent):
            return Decision(None)
        return decide(self.retry, attempt, error)


def make_handler(
    function: Callable[..., Any], settings: HandlerSettings, providers: Providers, names: Mapping[str, Any]
) -> Handler[..., ..., Any]:
    """The handler made of a function and its settings. Raises TypeError for what can't be run for a job.

    `names` are those around the definition, in which its annotations are looked up after its module's.
    """
    where = f"handler({settings.kind!r})"
    _check_function(where, function)
    reader = SignatureReader(function, where, providers, names)
    if reader.is_read:
        _check_fields(settings, reader.signature)
    return Handler(
        **{setting.name: getattr(settings, setting.name) for setting in fields(HandlerSettings)},
        function=function,
        is_async=is_async(function),
        _reader=reader,
        _providers=providers,
    )


def several(what: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """The values as a tuple; TypeError for a single one, which may well be iterable too (a text)."""
    if isinstance(values, str | type) or not isinstance(values, Iterable):
        shown = getattr(values, "__name__", None) or repr(values)
        raise TypeError(f"{what}: expected several, got {shown} alone: write [{shown}]")
    return tuple(values)


def _check_function(where: str, function: object) -> None:
    if isinstance(function, Handler):
        raise TypeError(
            f"{where}: {function_name(function.function)} is the handler of {function.kind!r} already: "
            "use aliases=(...) for a second name"
        )
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{where}: expected a function, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{where}: {function_name(function)} is a generator, which would end before its first line ran: "
            "take the yield out"
        )


def _check_key_settings(where: str, settings: HandlerSettings) -> None:
    if settings.key_scope is not None:
        check_scope(settings.key_scope, f"{where}: ")
    if isinstance(settings.key_scope, Period) and settings.key_scope.at is not None:
        raise ValueError(
            f"{where}: key_scope=Period(at=...) would be one and the same period for all calls: leave `at` out, or pass "
            "key_scope to enqueue()"
        )
    if settings.on_conflict is not None:
        check_on_conflict(settings.on_conflict, f"{where}: ")


def _check_fields(settings: HandlerSettings, signature: HandlerSignature) -> None:
    filled_in = (*signature.contexts, *signature.provided)
    for name in settings.unique_by or ():
        if name not in signature.codecs and (name in filled_in or signature.rest is None):
            raise ValueError(
                f"handler({settings.kind!r}): unique_by: {signature.function_name} takes no field "
                f"{name!r}{hint(name, signature.codecs)}"
            )


def _check_timeout(what: str, timeout: object) -> None:
    if timeout is None or timeout == "never":
        return
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"{what}={timeout!r}: expected a datetime.timedelta, "
            '"never" for no limit, or None for the timeout of the runner: write timedelta(seconds=...)'
        )
    check_setting(what, timeout, SHORTEST_TIMEOUT)


def _check_exception_class(what: str, cls: object) -> None:
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        raise TypeError(f"{what}: expected exception classes, got {cls!r}")


def _check_policy(what: str, policy: object) -> None:
    """A factory that somebody forgot to call is callable too, but takes other arguments."""
    if not isinstance(policy, type) and takes(policy, 1, Exception()):
        return
    raise TypeError(
        f"{what}: expected a policy such as exponential(), fixed(timedelta(...)), delays([...]) or never(), or a "
        f"function of (attempt, error); got {function_name(policy)}"
    )
