"""What a handler is told about the job it runs: plain values, flags that the runner raises meanwhile, and its own word.

No connection and no session lives here, so that a context may be logged, copied and sent to another process. What makes
them is attached by the runner, and stays behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from sa_jobqueue.errors import JobCancelledError, LeaseLostError
from sa_jobqueue.names import passed
from sa_jobqueue.records import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime
    from types import TracebackType

    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sa_jobqueue.records import ClaimedJob

    SessionT = TypeVar("SessionT", bound=Session)
    AsyncSessionT = TypeVar("AsyncSessionT", bound=AsyncSession)


class Completer(Protocol):
    """What stands behind the completions of one job; `completion` makes it."""

    def block(self, sessions: Any, result: Any) -> Any:
        """For `with` and `async with`."""
        ...

    def join(self, session: Any, result: Any) -> Any:
        """In the transaction of a session."""
        ...


class CompletionBlock(Protocol):
    """What `ctx.complete()` gives where it makes the session itself: for `with` and for `async with`."""

    def __enter__(self) -> Session: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    async def __aenter__(self) -> AsyncSession: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobContext:
    """One run of one job, as its handler sees it.

    `attempt` counts from 1; starts that were given back (a snooze, a runner that shut down before it began) don't
    count. Pass `idempotency_key` or `id` on to outside services, never the attempt. A copy, also one made by pickle, is
    a snapshot: the runner raises the flags of the original only, and hears of its progress alone.
    """

    id: int
    kind: str
    queue: str
    payload: Any = field(repr=False)
    attempt: int
    max_attempts: int
    idempotency_key: str | None
    run_at: datetime
    created_at: datetime
    runner_id: str
    _lost: bool = field(default=False, init=False, repr=False)
    _cancel_requested: bool = field(default=False, init=False, repr=False)
    _progress: Progress | None = field(default=None, init=False, repr=False)
    _on_progress: Callable[[], object] | None = field(default=None, init=False, repr=False)
    _completer: Completer | None = field(default=None, init=False, repr=False)

    @property
    def lost(self) -> bool:
        """The lease is gone: another runner may have the job, and nothing written for it here will land."""
        return self._lost

    @property
    def cancel_requested(self) -> bool:
        """Somebody asked to cancel the job: stop soon, by `raise_if_cancelled()` or with any outcome.

        A handler that returns as usual is done all the same; whatever else it does, the job is cancelled.
        """
        return self._cancel_requested

    def raise_if_lost(self) -> None:
        """Stop work that can't land any more: raises LeaseLostError once the lease is gone. Never asks the database."""
        if self._lost:
            raise LeaseLostError(
                f"job {self.id} ({self.kind}): the lease is lost, another runner may own the job; stop here, "
                "nothing this run writes to the job can land"
            )

    def raise_if_cancelled(self) -> None:
        """Stop work that nobody wants any more: raises JobCancelledError once somebody asked to cancel the job.

        When the handler lets that error out, the job is cancelled. Never asks the database.
        """
        if self._cancel_requested:
            raise JobCancelledError(f"job {self.id} ({self.kind}): somebody asked to cancel it; stop here")

    def progress(self, fraction: float | None, text: str | None = None) -> None:
        """Say how far the job is: `ctx.progress(0.4, "page 12")`, a share from 0 to 1 (or None), a text, or both.

        Costs next to nothing and asks no database: only the latest call counts, and the runner writes it down with the
        time and the attempt, about once a second at most. A text is cut to 4 KiB. From any thread. The last report stays
        with the job, also after its end and through a retry, until a later attempt reports. Raises ValueError for a share
        outside 0 to 1 and for nothing at all, TypeError for what is no number or no text.
        """
        if fraction is not None:
            if isinstance(fraction, bool) or not isinstance(fraction, int | float):
                raise TypeError(f"progress(): expected a share from 0 to 1 or None, got {passed(fraction)}")
            if not 0 <= fraction <= 1:
                raise ValueError(f"progress({fraction!r}): a share is from 0 to 1: divide by the whole")
            fraction = float(fraction)
        elif text is None:
            raise ValueError("progress(): nothing to tell: pass a share from 0 to 1, a text, or both")
        if text is not None and not isinstance(text, str):
            raise TypeError(f"progress(text=...): expected a text, got {type(text).__qualname__}")
        object.__setattr__(self, "_progress", Progress(fraction, text))
        if self._on_progress is not None:
            self._on_progress()

    @property
    def latest_progress(self) -> Progress | None:
        """What this run has reported last, None before its first report."""
        return self._progress

    @overload
    def complete(self, sessions: None = None, *, result: Any = None) -> CompletionBlock: ...

    @overload
    def complete(
        self, sessions: Callable[[], AsyncSessionT], *, result: Any = None
    ) -> AbstractAsyncContextManager[AsyncSessionT, None]: ...

    @overload
    def complete(
        self, sessions: Callable[[], SessionT], *, result: Any = None
    ) -> AbstractContextManager[SessionT, None]: ...

    def complete(self, sessions: Callable[[], Any] | None = None, *, result: Any = None) -> Any:
        """A session whose commit completes the job as well: both happen, or neither.

            with ctx.complete() as session:
                session.add(...)

        `async with` gives an AsyncSession. `sessions` makes the session: a sessionmaker, async_sessionmaker or any function
        without arguments; by default it is one on the runner's database, from a pool apart. The block commits at its
        end, rolls back on an error, and closes the session. The job is done if and only if that commit lands, which it
        does only while this run owns the job; jobs that are enqueued in the session come with it. `result` (JSON, by the
        rules of payloads) is stored with it.

        On the way in at least two thirds of the lease are left, or it is renewed. It is renewed while the block lasts as
        well, except where the transaction is REPEATABLE READ or SERIALIZABLE: there the block must take less than these
        two thirds. A commit within the block is fenced like its last one; after one that has landed changes are refused,
        and so is an end right after a rollback.

        Raises LeaseLostError, on the way in or at a commit, when this run doesn't own the job any more: nothing is written
        then, also not by who goes on. RuntimeError for what is refused, for a second completion and in a forked child,
        TypeError or ValueError for a result that can't be stored, ConfigurationError for a session that is bound to another
        database.
        """
        return self._behind("complete").block(sessions, result)

    @overload
    def complete_in(self, session: Session | scoped_session[Any], *, result: Any = None) -> None: ...

    @overload
    def complete_in(
        self, session: AsyncSession | async_scoped_session[Any], *, result: Any = None
    ) -> Coroutine[Any, Any, None]: ...

    def complete_in(self, session: Any, *, result: Any = None) -> Any:
        """The same for a session of yours: the transaction that it is in, or begins with this call, completes the job.

        With an AsyncSession it is `await ctx.complete_in(session)`, for it may have to renew the lease. It ends with that
        transaction; called within a savepoint it dies when that is rolled back. Under REPEATABLE READ and SERIALIZABLE
        call it before the transaction's first statement. Raises what `complete()` raises.
        """
        return self._behind("complete_in").join(session, result)

    def _behind(self, method: str) -> Completer:
        if self._completer is None:
            raise RuntimeError(
                f"ctx.{method}(): no runner stands behind this context of job {self.id} ({self.kind}): it is a copy, or was "
                "made without one; call it on the context that the handler was given"
            )
        return self._completer

    def mark_lost(self) -> None:
        """For the runner, from any thread: the lease is gone, for good."""
        object.__setattr__(self, "_lost", True)

    def mark_cancel_requested(self) -> None:
        """For the runner, from any thread: a renewal brought a cancel request."""
        object.__setattr__(self, "_cancel_requested", True)

    def show_payload(self, payload: Any) -> None:
        """For the runner, before the handler begins: the payload as its upcasters have left it."""
        object.__setattr__(self, "payload", payload)

    def __getstate__(self) -> list[Any]:
        """What a copy gets, in the order of the fields: nothing that belongs to the runner."""
        own = {"_on_progress": None, "_completer": None}
        return [own.get(one.name, getattr(self, one.name)) for one in fields(self)]


def context_of(
    job: ClaimedJob,
    *,
    runner_id: str,
    on_progress: Callable[[], object] | None = None,
    completer: Completer | None = None,
) -> JobContext:
    """What the handler of a claimed job is told, as the claim found it. For the runner; no handler needs it.

    `on_progress` is called, from any thread, whenever `latest_progress` has changed; `completer` stands behind
    `complete()` and `complete_in()`.
    """
    context = JobContext(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        payload=job.payload,
        attempt=job.counted_attempts,
        max_attempts=job.max_attempts,
        idempotency_key=job.idempotency_key,
        run_at=job.run_at,
        created_at=job.created_at,
        runner_id=runner_id,
    )
    if on_progress is not None:
        object.__setattr__(context, "_on_progress", on_progress)
    if completer is not None:
        object.__setattr__(context, "_completer", completer)
    return context
