"""What a test looks for among the jobs, and in what a job differs from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from sa_jobqueue.handlers import Handler
from sa_jobqueue.names import hint
from sa_jobqueue.records import HandlerCall
from sa_jobqueue.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sa_jobqueue.signature import HandlerSignature

ANYTHING: Any = object()
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job as it was stored when the test looked: a plain value without a session.

    `attempt` is the number of runs that count so far, 0 for a job that has not run.
    """

    id: int
    kind: str
    payload: Any
    queue: str
    status: JobStatus
    priority: int
    run_at: datetime
    created_at: datetime
    attempt: int
    max_attempts: int
    idempotency_key: str | None
    reason: str | None
    last_error: str | None

    @property
    def delay(self) -> timedelta:
        """How long after its creation it is due: exactly the `delay` that it was enqueued with."""
        return self.run_at - self.created_at


class Filters(TypedDict, total=False):
    """What a job may be looked for by, besides kind and payload.

    `run_at` is a time, or a time and how far from it the job may be due; `delay` is what it was enqueued with. `key` is
    the idempotency key, None for no key. `status` is "ready" unless another is given; None stands for any.
    """

    queue: str
    priority: int
    run_at: datetime | tuple[datetime, timedelta]
    delay: timedelta
    key: str | None
    status: JobStatus | str | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for. `names` are the kinds that will do, None for any."""

    names: tuple[str, ...] | None
    payload: Any
    status: JobStatus | None
    filters: Mapping[str, Any]

    def parameters(self) -> dict[str, Any]:
        """What the database sorts out already."""
        queue = self.filters.get("queue")
        return {
            "kinds": None if self.names is None else list(self.names),
            "queues": None if queue is None else [queue],
            "statuses": None if self.status is None else [str(self.status)],
        }

    def lines(self) -> list[str]:
        """What was looked for, one thing a line."""
        found: dict[str, str] = {}
        if self.names is not None:
            found["kind"] = " or ".join(map(repr, self.names))
        if self.payload is not ANYTHING:
            found["payload"] = shown(self.payload)
        found |= {name: _told(value) for name, value in self.filters.items()}
        found["status"] = "any" if self.status is None else str(self.status)
        return [f"    {name:<9}{value}" for name, value in found.items()]

    def misses(self, job: StoredJob) -> list[str]:
        """In what the job differs, one thing an entry; nothing for one that was looked for."""
        return list(self._misses(job))

    def _misses(self, job: StoredJob) -> Iterator[str]:
        if self.names is not None and job.kind not in self.names:
            yield "another kind"
        if self.status is not None and job.status is not self.status:
            reason = "" if job.reason is None else f" ({job.reason})"
            yield f"it is {job.status}{reason}, not {self.status}"
        if self.payload is not ANYTHING:
            yield from _payload_misses("payload", self.payload, job.payload)
        for name, wanted in self.filters.items():
            stored = job.idempotency_key if name == "key" else getattr(job, name)
            if not _fits(wanted, stored):
                yield f"{name} is {_told(stored)}, not {_told(wanted)}"


def wanted_of(kind: Any, payload: Any, filters: Mapping[str, Any], *, caller: str) -> Wanted:
    """The arguments of a test, checked. Raises TypeError or ValueError, naming the argument."""
    names: tuple[str, ...] | None = None
    match kind:
        case None:
            pass
        case str():
            names = (kind,)
        case Handler():
            names = kind.names
            if isinstance(payload, dict):
                _check_fields(caller, kind.signature, payload)
                payload = kind.signature.written(payload)
        case HandlerCall():
            if payload is not ANYTHING:
                raise TypeError(f"{caller}(): the call brings its payload along; leave the other one out")
            names, payload = (kind.kind,), kind.payload
        case _:
            raise TypeError(
                f"{caller}(): expected a kind (str), a handler or handler.call(...), got {type(kind).__qualname__}"
            )
    if unknown := filters.keys() - Filters.__annotations__.keys():
        raise TypeError(
            f"{caller}(): no such filter: {', '.join(sorted(unknown))}; there are "
            f"{', '.join(Filters.__annotations__)}, and fields of the payload go into a dict behind the kind"
        )
    status = filters.get("status", JobStatus.READY)
    rest = {name: value for name, value in filters.items() if name != "status"}
    if "run_at" in rest:
        _check_time(caller, rest["run_at"])
    return Wanted(names, payload, None if status is None else JobStatus(status), rest)


def shown(value: Any) -> str:
    """A value for people, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _check_fields(caller: str, signature: HandlerSignature, payload: dict[Any, Any]) -> None:
    """A field that no such job can have would let every `refute_enqueued()` pass."""
    if signature.rest is not None or not signature.codecs:
        return
    for name in payload.keys() - signature.codecs.keys():
        raise ValueError(
            f"{caller}(): {signature.function_name} takes no field {name!r}{hint(name, signature.codecs)}; for what another "
            "release has enqueued give the kind as a text"
        )


def _check_time(caller: str, value: Any) -> None:
    at = value[0] if isinstance(value, tuple) else value
    if isinstance(at, datetime) and at.tzinfo is None:
        raise ValueError(
            f"{caller}(): run_at {at} is naive: pass an aware datetime, such as datetime.now(UTC)"
        )


def _payload_misses(path: str, wanted: Any, stored: Any) -> Iterator[str]:
    if not isinstance(wanted, dict) or not isinstance(stored, dict):
        if not bool(wanted == stored):
            yield f"{path} is {shown(stored)}, not {shown(wanted)}"
        return
    for name, value in wanted.items():
        inner = f"{path}[{name!r}]"
        if name in stored:
            yield from _payload_misses(inner, value, stored[name])
        else:
            yield f"{inner} is missing"


def _fits(wanted: Any, stored: Any) -> bool:
    if isinstance(wanted, tuple):  # a time and how far from it
        at, tolerance = wanted
        return bool(abs(stored - at) <= tolerance)
    return bool(wanted == stored)


def _told(value: Any) -> str:
    match value:
        case (at, tolerance):
            return f"within {tolerance} of {_told(at)}"
        case datetime():
            return value.isoformat(sep=" ")
        case timedelta():
            return str(value)
        case _:
            return shown(value)
