"""`ctx.complete()` in tests: within the transaction of a drain, by the runner's own fence; in `perform()` without one."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.payloads import encode_result
from sa_jobqueue.store.fencing import is_in_force

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncSession

    from sa_jobqueue.context import JobContext
    from sa_jobqueue.records import ClaimedJob, Progress

_ENDED = (Fate.UNDONE, Fate.LOST)


class Holder:
    """Holds the lease of one job for one run, and remembers its completion. Nobody else can take the job meanwhile."""

    context: JobContext

    def __init__(self) -> None:
        self.completion: Completion | None = None

    def begin(self, completion: Completion) -> None:
        """Raises LeaseLostError where the test says that the job is lost, RuntimeError for a second completion."""
        if self.completion is not None and self.completion.fate not in _ENDED:
            raise RuntimeError(f"job {completion.key[0]}: a second completion of one run")
        self.completion = completion
        if self.context.lost:
            completion.fate = Fate.LOST
            completion.error = LeaseLostError(
                f"job {completion.key[0]}: the lease is lost, so it can't be completed"
            )
            raise completion.error

    def hold_renewals(self, completion: Completion) -> None:
        """Nothing renews it."""

    def resume_renewals(self, completion: Completion) -> None:
        """Nothing renews it."""

    def fencing(self, completion: Completion) -> None:
        """Nobody else decides."""

    def unwritten_progress(self, completion: Completion) -> Progress | None:  # noqa: ARG002 - there is but one
        """The drain writes it with the outcome, if there is one to write."""
        return self.context.latest_progress

    def decided(self, completion: Completion) -> None:
        """The drain looks when the handler has ended: before that a rollback may take everything back."""

    def look_back(self, connection: Connection) -> Completion | None:
        """The completion with its fate, once the handler has ended.

        Its commit was the release of a savepoint, which counts for as long as no savepoint around it is rolled back: the
        row knows.
        """
        completion = self.completion
        if completion is not None:
            landed = False
            with suppress(
                DBAPIError
            ):  # of a transaction that the handler has left aborted, as the settlement will find
                landed = is_in_force(connection, completion.key)
            if landed:
                completion.fate = Fate.LANDED
            elif completion.fate is not Fate.LOST:
                completion.fate = Fate.UNDONE
        return completion


class SameConnection:
    """Sessions for blocks that bring none: on the test's own connection, their commits the release of savepoints."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def session(self) -> Session:
        """A new session."""
        return Session(self._connection, join_transaction_mode="create_savepoint")

    def async_session(self) -> AsyncSession:
        """The same for async handlers, whether the connection is an async one or not."""
        from sqlalchemy.ext.asyncio import AsyncSession  # it needs greenlet

        session = AsyncSession(join_transaction_mode="create_savepoint")
        session.sync_session.bind = self._connection
        return session


class Unfenced:
    """Stands behind the completions of one `perform()`: there is no job in any database, and so nothing to fence.

    A block gives the test's own `session`, within a savepoint, or without one what the handler's function makes.
    """

    def __init__(self, holder: Holder, job: ClaimedJob, session: Any) -> None:
        self._holder = holder
        self._job = job
        self._session = session

    def block(self, sessions: Any, result: Any) -> _Block:
        """For `with` and `async with`."""
        encode_result(result)
        if self._session is None and sessions is None:
            raise RuntimeError(
                "perform(): ctx.complete() needs a session, and there is no database here: pass the test's own as "
                "session=..., give complete() a sessionmaker, or run the job by drain()"
            )
        return _Block(self, self._session, sessions)

    def join(self, session: Any, result: Any) -> Any:
        """In the transaction of a session, whose end is nobody's business here."""
        encode_result(result)

        def begin() -> None:
            self.begin().fate = Fate.LANDED

        if isinstance(session, Session) or not hasattr(session, "run_sync"):
            return begin()

        async def begin_async() -> None:
            begin()

        return begin_async()

    def begin(self) -> Completion:
        """The completion, begun."""
        completion = Completion((self._job.id, self._job.token))
        self._holder.begin(completion)
        return completion

    @contextmanager
    def completing(self) -> Iterator[None]:
        """One completion from its begin to its fate."""
        completion = self.begin()
        try:
            yield
        except BaseException as error:
            completion.fate, completion.error = Fate.UNDONE, error
            raise
        completion.fate = Fate.LANDED


class _Block:
    """One block without a fence, for `with` or `async with`."""

    def __init__(self, behind: Unfenced, session: Any, sessions: Callable[[], Any] | None) -> None:
        self._behind = behind
        self._session = session
        self._sessions = sessions
        self._entered: Any = None

    def __enter__(self) -> Any:
        self._entered = self._with()
        return self._entered.__enter__()

    def __exit__(self, *ended: Any) -> Any:
        return self._entered.__exit__(*ended)

    async def __aenter__(self) -> Any:
        self._entered = self._async_with()
        return await self._entered.__aenter__()

    async def __aexit__(self, *ended: Any) -> Any:
        return await self._entered.__aexit__(*ended)

    @contextmanager
    def _with(self) -> Iterator[Session]:
        session = self._made("with", is_async=False)
        if self._session is not None:
            with self._behind.completing(), session.begin_nested():
                yield session
        else:
            with self._behind.completing(), session, session.begin():
                yield session

    @asynccontextmanager
    async def _async_with(self) -> AsyncIterator[AsyncSession]:
        session = self._made("async with", is_async=True)
        if self._session is not None:
            with self._behind.completing():
                async with session.begin_nested():
                    yield session
        else:
            with self._behind.completing():
                async with session, session.begin():
                    yield session

    def _made(self, form: str, *, is_async: bool) -> Any:
        session = self._session
        if session is None and self._sessions is not None:
            session = self._sessions()
        if (
            registry := getattr(session, "registry", None)
        ) is not None:  # scoped_session, async_scoped_session
            session = registry()
        if isinstance(session, Session) == is_async:
            raise TypeError(
                f"perform(): `{form} ctx.complete()` needs {'an AsyncSession' if is_async else 'a Session'}, got "
                f"{type(session).__qualname__}: `with` is for Session, `async with` for AsyncSession"
            )
        return session
