"""`perform()`: one run of one handler without a database, told as a value."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload
from uuid import uuid4

from sqlalchemy.util import greenlet_spawn

from sa_jobqueue.context import context_of
from sa_jobqueue.entry.request import enqueue, request_of
from sa_jobqueue.handlers import Handler
from sa_jobqueue.names import hint
from sa_jobqueue.records import ClaimedJob, HandlerCall
from sa_jobqueue.registry import Registry
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.testing._attempts import EventLoop, Performed, attempt, check_stand_ins
from sa_jobqueue.testing._completing import Holder, Unfenced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sa_jobqueue.context import JobContext

    AnyHandler = Handler[..., ..., Any]

_OMITTED: Any = object()
_NAME = "perform"
_ADVICE = "write `await perform_async(...)` with the same arguments"


class RunOptions(TypedDict, total=False):
    """What a test may choose of a run: what the context says of the job, and whether a failure is raised.

    `max_attempts` and `queue` are the handler's own unless they are given; `attempt` is 1, `id` 1, `run_at` now.
    `payload_version` is for a payload by name, as older code has enqueued it; its handler's own unless it is given.
    `session` is what `ctx.complete()` gives; `provide` holds by type what stands in for what the registry provides.
    """

    attempt: int
    max_attempts: int
    queue: str
    id: int
    idempotency_key: str
    payload_version: int
    run_at: datetime
    lost: bool
    cancel_requested: bool
    raise_errors: bool
    session: Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]
    provide: Mapping[Any, Any]


@overload
def perform(what: HandlerCall, /, **options: Unpack[RunOptions]) -> Performed: ...


@overload
def perform(what: Registry, kind: str, payload: Any = ..., /, **options: Unpack[RunOptions]) -> Performed: ...


def perform(
    what: Any, kind: Any = _OMITTED, payload: Any = _OMITTED, /, **options: Unpack[RunOptions]
) -> Performed:
    """Call a handler as a runner does, once and without a database, and tell what would become of the job.

        run = perform(embed.call(document_id=7), attempt=8)
        assert run.status == "dead"

    By name it is `perform(jobs, "document.embed", {"document_id": 7})`. The payload is checked as by `enqueue()` and
    reaches the handler as it comes out of the database, by way of JSON. The context is that of a first attempt; what a
    test needs otherwise it passes: `attempt`, `max_attempts`, `queue`, `id`, `idempotency_key`, `run_at`, by name
    `payload_version` for what an older release has enqueued, or the flags `lost` and `cancel_requested`.

    `ctx.complete()` needs the test's own session, `perform(..., session=session)`, or a sessionmaker of the handler's: the
    block gives the first, within a savepoint that a failure rolls back, or what the second makes, and commits that. There
    is no job in the database, so nothing is fenced, and the test says how a lost job fares with `lost=True`.

    `provide={MailClient: FakeClient()}` gives the handler a stand-in for what the registry provides.

    What the handler raises comes out, for most tests expect none; with `raise_errors=False` it is judged by the retry
    policy and told in the record, as an outcome (`Retry`, `Snooze`, `Discard`, returned or raised by `Settle`) always
    is. Whether a payload fits its handler counts as well: PayloadError.

    An async handler runs in an event loop made for it; where a loop is running, RuntimeError says so: there it is
    `await perform_async(...)`. Raises TypeError or ValueError for arguments that can't work, LookupError for a kind
    that the registry doesn't know.
    """
    raise_errors = options.pop("raise_errors", True)
    session = options.pop("session", None)
    provide = options.pop("provide", {})
    job, handler, context, holder = _prepared(what, kind, payload, options, session)
    check_stand_ins("perform", provide, [handler])
    with EventLoop(_ADVICE) as loop:
        loop.check(handler)
        attempted = attempt(job, handler, context, loop, lambda: holder.completion, provide)
    if attempted.error is not None and raise_errors:
        raise attempted.error
    verb = attempted.settlement.verb
    return attempted.performed(job, _status(verb, job, cancel_requested=context.cancel_requested))


@overload
async def perform_async(what: HandlerCall, /, **options: Unpack[RunOptions]) -> Performed: ...


@overload
async def perform_async(
    what: Registry, kind: str, payload: Any = ..., /, **options: Unpack[RunOptions]
) -> Performed: ...


async def perform_async(
    what: Any, kind: Any = _OMITTED, payload: Any = _OMITTED, /, **options: Unpack[RunOptions]
) -> Performed:
    """`perform()` in the running event loop: `run = await perform_async(embed.call(document_id=7))`."""
    return await greenlet_spawn(perform, what, kind, payload, **options)


def _prepared(
    what: Any, kind: Any, payload: Any, options: RunOptions, session: Any
) -> tuple[ClaimedJob, AnyHandler, JobContext, Holder]:
    if unknown := options.keys() - RunOptions.__annotations__.keys():
        raise TypeError(f"perform(): no such option: {', '.join(sorted(unknown))}")
    handler, call = _called(what, kind, payload, options.get("payload_version"))
    asked = request_of(
        enqueue(
            call,
            queue=options.get("queue"),
            max_attempts=options.get("max_attempts"),
            idempotency_key=options.get("idempotency_key"),
            run_at=options.get("run_at"),
        )
    )
    new_job, now, number = asked.new_job, datetime.now(UTC), options.get("attempt", 1)
    if not 1 <= number <= new_job.max_attempts:
        raise ValueError(
            f"perform(): attempt: expected 1 to {new_job.max_attempts} (max_attempts), got {number}"
        )
    if new_job.payload_version > handler.payload_version:
        raise ValueError(
            f"perform(): payload_version: the handler of {handler.kind!r} takes up to {handler.payload_version}, got "
            f"{new_job.payload_version}: its runner would put the job back for newer code"
        )
    job = ClaimedJob(
        id=options.get("id", 1),
        token=uuid4(),
        kind=new_job.kind,
        queue=new_job.queue,
        payload=json.loads(asked.payload_text),
        payload_version=new_job.payload_version,
        priority=new_job.priority,
        attempts=number,
        returned=0,
        max_attempts=new_job.max_attempts,
        run_at=new_job.run_at or now,
        created_at=now,
        idempotency_key=new_job.idempotency_key,
        expired=False,
    )
    holder = Holder()
    context = context_of(job, runner_id=_NAME, completer=Unfenced(holder, job, session))
    holder.context = context
    if options.get("lost"):
        context.mark_lost()
    if options.get("cancel_requested"):
        context.mark_cancel_requested()
    return job, handler, context, holder


def _called(what: Any, kind: Any, payload: Any, version: int | None) -> tuple[AnyHandler, HandlerCall]:
    """The handler and the call, whichever way they were given."""
    if isinstance(what, Registry) and isinstance(kind, str):
        if (handler := what.find(kind)) is None:
            raise LookupError(f"perform(): no handler of {kind!r} in the registry{hint(kind, what.kinds)}")
        payload = {} if payload is _OMITTED else payload
        return handler, HandlerCall(
            kind,
            payload,
            queue=handler.queue,
            max_attempts=handler.max_attempts,
            priority=handler.priority,
            payload_version=handler.payload_version if version is None else version,
            max_payload_bytes=handler.max_payload_bytes,
        )
    if isinstance(what, HandlerCall) and isinstance(what.handler, Handler) and kind is _OMITTED:
        if version is not None:
            raise TypeError(
                "perform(): payload_version is for a payload by name: write perform(registry, kind, payload, ...)"
            )
        return what.handler, what
    given = "" if kind is _OMITTED else f" and {type(kind).__qualname__}"
    advice = (
        f": write perform({_plain_name(what)}.call(...)), with the arguments of the function"
        if isinstance(what, Handler)
        else ""
    )
    raise TypeError(
        "perform(): expected handler.call(...), or a Registry, a kind and a payload, got "
        f"{type(what).__qualname__}{given}{advice}"
    )


def _plain_name(handler: AnyHandler) -> str:
    name = getattr(handler.function, "__name__", "")
    return name if name.isidentifier() else "handler"


def _status(verb: Verb, job: ClaimedJob, *, cancel_requested: bool) -> JobStatus:
    """Where the settlement leads: what the statements decide, said once more in Python."""
    if verb is Verb.COMPLETE:
        return JobStatus.DONE
    if verb is Verb.ABORT or cancel_requested:
        return JobStatus.CANCELLED
    exhausted = verb is Verb.RETRY and job.counted_attempts >= job.max_attempts
    return JobStatus.DEAD if exhausted or verb is Verb.DISCARD else JobStatus.READY
