"""`enqueue()`: what somebody asks for, checked at the call and kept apart from what the server answers.

Nothing here sends SQL or knows a session. A Job carries its request in its `__dict__`, where expiry doesn't reach, so
that it can be inserted again after a rollback.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sa_jobqueue import arguments
from sa_jobqueue.entry.keys import Key, read_key
from sa_jobqueue.handlers import Handler
from sa_jobqueue.key_settings import DEFAULT_SCOPE
from sa_jobqueue.models import Job, jobs
from sa_jobqueue.payloads import LIMIT_SETTING, encode, fix, resolve
from sa_jobqueue.records import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_PAYLOAD_BYTES,
    DEFAULT_PAYLOAD_VERSION,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    HandlerCall,
    NewJob,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from sa_jobqueue.payloads import Ref
    from sa_jobqueue.periods import Period
    from sa_jobqueue.records import KeyScope, OnConflict

_OMITTED: Any = object()
COLUMNS = tuple(column.key for column in jobs.columns)
#: Columns that a Job made by its constructor or by `Session.merge()` may bring along.
GIVEN = (
    "kind",
    "payload",
    "queue",
    "payload_version",
    "run_at",
    "priority",
    "max_attempts",
    "expires_at",
    "idempotency_key",
)


class Request(NamedTuple):
    """What was asked for. `payload` is a copy, in which `refs` stand in the place of values; `key` may be made of it.

    `limit` is what the payload may take in bytes, `limit_setting` what raises it.
    """

    new_job: NewJob
    payload: Any
    refs: tuple[Ref, ...]
    key: Key | None
    limit: int
    limit_setting: str

    @property
    def payload_text(self) -> str:
        """The JSON of the payload. Raises TypeError while it has references, ValueError for what can't be stored."""
        return self._encoded(self.payload)

    def _encoded(self, payload: Any) -> str:
        return encode(payload, limit=self.limit, setting=self.limit_setting)

    def resolved(self, value_of: Callable[[Ref], Any]) -> tuple[NewJob, Any]:
        """The row with every reference replaced, and its payload; ValueError where a value can't be stored."""
        if not self.refs:
            return self.new_job, self.payload
        payload = resolve(self.payload, value_of)
        new_job = self.new_job._replace(payload=self._encoded(payload))
        return (new_job if self.key is None else self.key.put(new_job, payload)), payload


def enqueue(
    kind: str | HandlerCall,
    payload: Any = _OMITTED,
    *,
    queue: str | None = None,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    expires_at: datetime | None = None,
    idempotency_key: str | None = None,
    unique_by: Iterable[str] | None = None,
    key_scope: KeyScope | Period | None = None,
    on_conflict: OnConflict | None = None,
    payload_version: int | None = None,
    max_payload_bytes: int | None = None,
) -> Job:
    """A new Job for `session.add()`, for a relationship, or for `enqueue_many()`; this call sends no SQL.

    The first argument is a kind, followed by its payload, or `handler.call(...)`, which brings kind and payload along, and
    what the handler says of its jobs: queue, attempts, priority, keys, size and version of the payload; what is given here
    wins over what it brings, but for the version, which is that of the code that made the payload. The payload is fixed
    now: later changes of the caller's objects don't reach it. A payload that is left out is `{}`; None, `{}` and `[]` stay
    what they are. By name it is of `payload_version` 1, and takes up to 256 KiB of JSON, unless these say otherwise.

    The job is due at `run_at`, or `delay` after the database's now(), which is the start of the caller's transaction,
    or at once; while a delayed job is pending, its `run_at` shows the delay. After `expires_at` it is cancelled
    instead of started. Priority 0 goes first, 9 last.

    A second job with the same `idempotency_key` is not inserted. `unique_by` makes the key instead: of the kind and of
    the values of these fields of the payload, the same in every process. `key_scope` says for how long a key is taken:
    "row" (the default) as long as the row of the first job is kept, "unfinished" until that job is done, dead or cancelled,
    `Period(timedelta(hours=1))` as "row", but for each hour anew. `on_conflict` says what becomes of the second job:

    - "existing": nothing; `job.enqueued` tells the id of the first, and its status, for it may well be dead.
    - "replace": the first becomes what this call asks for, if it waits; it keeps its id, its key and its errors, and
      has a new budget of attempts.
    - "reschedule": the first gets the due time of this call, if it waits (debounce).
    - "raise": DuplicateKeyError from the flush or the bulk call, which leaves the transaction as it was.

    Where the first should change but runs, `job.enqueued.outcome` is "running": that run may not see what this
    transaction is about to commit.

    Raises TypeError or ValueError for an argument that can't work, naming it, or the JSON path in the payload. The
    Job can't be changed afterwards: assigning an attribute raises UnfencedWriteError.
    """
    call = None
    setting = LIMIT_SETTING
    if isinstance(kind, HandlerCall):
        call = kind
        if payload is not _OMITTED:
            raise TypeError(
                "enqueue(): the call brings its payload along; pass arguments to handler.call(...)"
            )
        if payload_version is not None:
            raise TypeError(
                "enqueue(): the call brings its payload_version along, that of the handler that made the payload: leave it "
                "out, or enqueue by name"
            )
        kind, payload, payload_version = call.kind, call.payload, call.payload_version
        queue = call.queue if queue is None else queue
        priority = call.priority if priority is None else priority
        max_attempts = call.max_attempts if max_attempts is None else max_attempts
        if max_payload_bytes is None:
            max_payload_bytes, setting = call.max_payload_bytes, f"max_payload_bytes of handler({kind!r})"
    elif not isinstance(kind, str):
        raise TypeError(
            f"enqueue(): expected a kind (str) or handler.call(...) first, got {passed_instead(kind)}"
        )
    job = Job()
    _put(
        job,
        _request(
            kind=kind,
            payload={} if payload is _OMITTED else payload,
            queue=queue,
            payload_version=payload_version,
            run_at=run_at,
            delay=delay,
            priority=priority,
            max_attempts=max_attempts,
            expires_at=expires_at,
            key=read_key(idempotency_key, unique_by, key_scope, on_conflict, call),
            max_payload_bytes=max_payload_bytes,
            limit_setting=setting,
        ),
    )
    return job


def passed_instead(wrong: object) -> str:
    """What was passed in the place of a kind, a call or a Job, and how to write it where a handler was meant."""
    if isinstance(wrong, HandlerCall):
        return f"a call of {wrong.kind!r}: wrap it in enqueue()"
    handler = getattr(wrong, "__self__", wrong)
    if not isinstance(handler, Handler):
        return type(wrong).__qualname__
    name = getattr(handler.function, "__name__", "handler")
    what = "the handler" if handler is wrong else "a method of the handler"
    return f"{what} of {handler.kind!r}: write enqueue({name}.call(...)), with the arguments of the function"


def request_of(job: Job) -> Request:
    """The request of a Job; one that `enqueue()` didn't make gets its own from its attributes, and is fixed then.

    Raises as `enqueue()` does, and ValueError for a column that only the queue itself writes.
    """
    request: Request | None = vars(job).get("_request")
    if request is None:
        request = _from_attributes(job)
        forget(job)
        _put(job, request)
    return request


def restore(job: Job) -> None:
    """Show what was asked for again: what the server answered was rolled back."""
    request = request_of(job)
    forget(job)
    _put(job, request)


def forget(job: Job) -> None:
    """Take every mapped attribute out of the instance, and what it was told."""
    attributes = vars(job)
    for name in COLUMNS:
        attributes.pop(name, None)
    attributes.pop("_enqueued", None)


def shown_by(request: Request) -> dict[str, Any]:
    """The mapped attributes that a request decides; a delay stands in `run_at`."""
    new_job = request.new_job
    attributes = {
        "kind": new_job.kind,
        "payload": request.payload,
        "queue": new_job.queue,
        "payload_version": new_job.payload_version,
        "priority": new_job.priority,
        "max_attempts": new_job.max_attempts,
    }
    if (due := new_job.run_at or new_job.delay) is not None:
        attributes["run_at"] = due
    if new_job.expires_at is not None:
        attributes["expires_at"] = new_job.expires_at
    if new_job.idempotency_key is not None:
        attributes["idempotency_key"] = new_job.idempotency_key
    if request.key is not None and not request.key.is_plain(new_job):
        # What `Session.merge()` would make of the attributes alone is another key: with this one among them it is refused.
        attributes["key_scope"] = new_job.key_scope or DEFAULT_SCOPE
    return attributes


def _put(job: Job, request: Request) -> None:
    # Plain writes to the dictionary: the unit of work never inserts these attributes, so they need no history.
    vars(job).update(shown_by(request), _request=request)


def _from_attributes(job: Job) -> Request:
    given = {name: vars(job)[name] for name in COLUMNS if name in vars(job)}
    if taken := [name for name, value in given.items() if name not in GIVEN and value is not None]:
        raise ValueError(
            f"Job({', '.join(taken)}): the queue alone writes this; make a new job with enqueue(kind, payload, ...)"
        )
    due = given.get("run_at")
    is_delay = isinstance(due, timedelta)
    return _request(
        kind=given.get("kind"),
        payload=given.get("payload", {}),
        queue=given.get("queue"),
        payload_version=given.get("payload_version"),
        run_at=None if is_delay else due,
        delay=due if is_delay else None,
        priority=given.get("priority"),
        max_attempts=given.get("max_attempts"),
        expires_at=given.get("expires_at"),
        key=read_key(given.get("idempotency_key"), None, None, None),
    )


def _request(
    *,
    kind: Any,
    payload: Any,
    queue: Any,
    payload_version: Any,
    run_at: Any,
    delay: Any,
    priority: Any,
    max_attempts: Any,
    expires_at: Any,
    key: Key | None,
    max_payload_bytes: Any = None,
    limit_setting: str = LIMIT_SETTING,
) -> Request:
    arguments.check_times(run_at=run_at, delay=delay, expires_at=expires_at)
    limit = (
        DEFAULT_MAX_PAYLOAD_BYTES
        if max_payload_bytes is None
        else arguments.max_payload_bytes(max_payload_bytes)
    )
    fixed = fix(payload, limit=limit, setting=limit_setting)
    new_job = NewJob(
        payload=fixed.text,
        kind=arguments.name("kind", kind),
        queue=DEFAULT_QUEUE if queue is None else arguments.name("queue", queue),
        payload_version=DEFAULT_PAYLOAD_VERSION
        if payload_version is None
        else arguments.payload_version(payload_version),
        priority=DEFAULT_PRIORITY if priority is None else arguments.priority(priority),
        max_attempts=DEFAULT_MAX_ATTEMPTS if max_attempts is None else arguments.max_attempts(max_attempts),
        run_at=run_at,
        delay=delay,
        expires_at=expires_at,
    )
    if key is not None:
        new_job = key.put(new_job, fixed.value)
    return Request(new_job, fixed.value, fixed.refs, key, limit, limit_setting)
