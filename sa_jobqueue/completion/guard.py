"""One completion in one session: every commit of it is fenced, and what became of the fence is remembered.

The decisions of the two nets, which `nets` hangs up: `before_commit` of the session, and the `commit` and `prepare` of
its connections for what comes past that, a savepoint left open or a commit of the connection itself. Nothing is taken
down in the handler's time: a completion that is lost stays lost, also for a handler that swallows the error and commits
again. Nothing here knows runners; statements are the store's.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import ConfigurationError, LeaseLostError
from sa_jobqueue.records import Landing
from sa_jobqueue.store.callers_connection import in_autocommit
from sa_jobqueue.store.fencing import has_written, is_in_force, send_fence
from sa_jobqueue.store.sessions import writing_connection
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from sqlalchemy import Connection
    from sqlalchemy.exc import StatementError
    from sqlalchemy.orm import Session, SessionTransaction

    from sa_jobqueue.completion.owner import Completion, LeaseOwner

#: Where a transaction's snapshot is older than its last statement: there the server refuses a row that has changed since.
_SNAPSHOTS = ("REPEATABLE READ", "SERIALIZABLE")
_FOUND = {
    Landing.LOST: "another runner or an operator has it now",
    Landing.EXPIRED: "its lease has ended, and the transaction came too late",
    Landing.BUSY: "its lease had ended when the transaction came",
    Landing.GONE: "there is no such job where the session leads: it was pruned, or the session is bound to another database "
    "than the one that the job came from",
}


class _Fence:
    """A fence that was answered, in a transaction that has not ended yet.

    `touched`: something ran after it, which may have failed or gone back to a savepoint. `ending`: COMMIT or PREPARE is
    about to be sent, and only an answer tells what became of it.
    """

    __slots__ = ("connection", "ending", "prepared", "touched", "transaction")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transaction = connection.get_transaction()
        self.touched = self.ending = self.prepared = False

    @property
    def open(self) -> bool:
        """The connection's own transaction has not ended, whoever ends it."""
        return self.transaction is not None and self.transaction.is_active


class Guard:
    """The fence of one completion around the commits of one session.

    `may_block` calls what may wait for others. With a `home` the guard ends with that transaction of the session,
    otherwise when `conclude` is called.
    """

    def __init__(
        self,
        completion: Completion,
        owner: LeaseOwner,
        session: Session,
        *,
        job: str,
        lease: timedelta,
        may_block: Callable[..., None],
    ) -> None:
        self.completion: Completion = completion
        self.home: SessionTransaction | None = None
        self.over: bool = False
        self._owner = owner
        # Weak, as what the connections know of this: a session that nobody ends gives its connection back all the same.
        self._session = weakref.ref(session)
        self._job = job
        self._lease = lease
        self._may_block = may_block
        self._released: SessionTransaction | None = None
        self._connections: list[Connection] = []
        self._jobs: Connection | None = None
        self._fence: _Fence | None = None
        self._in_doubt = False
        self._failure: Exception | None = None
        self._renewals_held = False
        self._at_work = False
        self._committed = self._taken_back = False

    @property
    def landed(self) -> bool:
        """The job is done, as far as this completion is concerned for good."""
        return self.completion.fate is Fate.LANDED

    # What the session tells.

    def connected(self, connection: Connection) -> None:
        """A transaction of the session begins here; nothing has been sent yet, unless it was joined to an outer one."""
        if any(known is connection for known in self._connections):
            return
        self._connections.append(connection)
        self._taken_back = False
        if in_autocommit(connection):
            raise self._fail(
                RuntimeError(
                    f"{self._job} can't be completed on a connection in AUTOCOMMIT: there is no transaction for it"
                )
            )
        options = connection.get_execution_options()
        level = options.get("isolation_level", connection.default_isolation_level)
        if level in _SNAPSHOTS and not self._renewals_held:
            # Our own renewal would be the change of the row for which the server refuses the fence.
            self._may_block(self._owner.hold_renewals, self.completion)
            self._renewals_held = True

    def before_commit(self, session: Session) -> None:
        """The first net. With a savepoint open it is left to the second: this may be no more than its release."""
        if session.in_nested_transaction():
            self.find_jobs(session)  # there is no asking any more when the second net needs it
            return
        self._raise_failure()
        if not self.landed:
            session.flush()
            self._send(self.find_jobs(session))
        if self.landed:
            self.refuse_more(session)

    def after_commit(self, session: Session) -> None:
        """All that the session has sent was answered."""
        if session.in_nested_transaction():
            self._released = session.get_nested_transaction()
            return
        self._committed = True
        if (fence := self._fence) is not None and fence.ending and not fence.open:
            self._land()

    def transaction_ended(self, transaction: SessionTransaction) -> None:
        """By commit, rollback or close."""
        if transaction.parent is None:
            self._leave_transaction()
            self._taken_back, self._committed = not self._committed, False
        if transaction is self.home:
            if transaction.parent is not None and transaction is self._released:
                self.home = transaction.parent
            else:
                self.conclude()

    # What its connections tell.

    def committing(self, connection: Connection) -> None:
        """The second net: COMMIT is sent on return.

        Where that must not be, the transaction is rolled back first, past SQLAlchemy: left open it would be committed by
        whoever swallows the error and tries again.
        """
        try:
            self._let_pass(connection)
        except BaseException:
            with suppress(Exception):
                connection.dialect.do_rollback(connection.connection)
            raise
        if self._fence is not None and self._fence.connection is connection:
            self._fence.ending = True

    def preparing(self, connection: Connection) -> None:
        """The same before PREPARE TRANSACTION, from which on only the server can tell. The session itself rolls back."""
        self._let_pass(connection)
        if self._fence is not None and self._fence.connection is connection:
            self._fence.ending = self._fence.prepared = True

    def executing(self, connection: Connection) -> None:
        """A statement is sent."""
        if self._fence is not None and not self._at_work and self._fence.connection is connection:
            self._fence.touched = True

    def failing(self, connection: Connection, error: StatementError | None) -> None:
        """A statement or a COMMIT has raised this. What the server itself refuses to commit it has rolled back."""
        fence = self._fence
        if fence is None or fence.connection is not connection or not fence.ending or fence.prepared:
            return
        fence.ending = not (isinstance(error, DBAPIError) and error.statement is None and refused(error))

    # What the block tells.

    def find_jobs(self, session: Session) -> Connection:
        """The connection of the session's transaction that leads to the jobs."""
        if self._jobs is None:
            self._jobs = writing_connection(session)
        return self._jobs

    def has_landed(self, session: Session) -> bool:
        """At the end of the block: nothing is left to commit. Raises RuntimeError for changes that are."""
        self._raise_failure()
        self._look_after()
        if self.landed:
            self.refuse_more(session)
        return self.landed

    def refuse_nothing(self, session: Session) -> None:
        """Before the block's own commit: after a rollback, by whatever it came, a job is not done by having no effects."""
        if self._taken_back and not _has_changes(session):
            raise RuntimeError(
                f"{self._job}: what the block has written was rolled back, and nothing has been done since that would complete "
                "it: let the error out, or do it again"
            )

    def refuse_more(self, session: Session) -> None:
        """After the landing reads are nobody's business; changes would be outside of what is guaranteed."""
        changed = _has_changes(session)
        for connection in self._connections:
            if not changed and not connection.closed and connection.in_transaction():
                with self._work():
                    changed = has_written(connection)
        if changed:
            raise self._more()

    def conclude(self, error: BaseException | None = None) -> None:
        """The end, told to the owner: nothing is guarded any more. `error` is what ended it."""
        if self.over:
            return
        self.over = True
        self._leave_transaction()
        self._fence = None
        completion = self.completion
        if self.landed:
            return
        if self._renewals_held:
            self._owner.resume_renewals(completion)
        completion.error = (
            self._failure or error or (self._unproved() if self._in_doubt else self._rolled_back())
        )
        if self._in_doubt:
            completion.fate = Fate.DOUBTFUL
        else:
            completion.fate = Fate.LOST if isinstance(self._failure, LeaseLostError) else Fate.UNDONE
        self._owner.decided(completion)

    # How it is done.

    def _let_pass(self, connection: Connection) -> None:
        self._raise_failure()
        if not self.landed:
            session = self._session()
            if (
                session is not None and session.is_active
            ):  # a commit past the session: what it holds belongs to the work
                session.flush()
                self.find_jobs(session)
            self._send(self._jobs or connection)
        elif not self._at_work and has_written(connection):
            raise self._more()

    def _send(self, connection: Connection) -> None:
        """The fence, unless it stands in this transaction, or turns out to have been committed."""
        self._look_after()
        if self.landed or self._fence is not None:
            return
        completion = self.completion
        try:
            self._owner.fencing(completion)
        except LeaseLostError as error:
            raise self._fail(error) from None
        completion.fate = Fate.DOUBTFUL
        try:
            with self._work():
                fenced = send_fence(
                    connection,
                    completion.key,
                    result=completion.result,
                    progress=self._owner.unwritten_progress(completion),
                    lease=self._lease,
                )
        except ConfigurationError as error:
            raise self._fail(error) from error.__cause__
        if fenced.landing is not Landing.LANDED:
            raise self._fail(self._lost(_FOUND[fenced.landing]))
        completion.xid = fenced.xid
        self._in_doubt = False  # had an earlier one landed, this could not
        self._fence = _Fence(connection)

    def _look_after(self) -> None:
        """Does the fence that was sent still stand, after whatever has run since?"""
        fence = self._fence
        if fence is None or (fence.open and not fence.touched):
            return
        if fence.open or fence.ending:
            with self._work():
                stands = is_in_force(fence.connection, self.completion.key)
            if stands and fence.open:
                fence.touched = False
                return
            if stands:  # somebody has committed past the session
                self._land()
                return
        self._in_doubt = fence.ending
        self._fence = None

    def _leave_transaction(self) -> None:
        """Of what is not proved the owner finds out: a COMMIT without an answer, or that an outer transaction has yet to send."""
        fence = self._fence
        if fence is not None and not self.landed and (fence.ending or fence.open):
            self._in_doubt = True
        if fence is not None and fence.open:
            fence.touched = True  # the outer transaction has it still, unless it went back to a savepoint
        else:
            self._fence = None
        self._jobs = None
        self._connections.clear()

    def _land(self) -> None:
        self.completion.fate = Fate.LANDED
        self._owner.decided(self.completion)

    def _fail(self, error: Exception) -> Exception:
        """For good: no commit passes any more."""
        self._failure = error
        return error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.over:
            raise self._rolled_back()

    @contextmanager
    def _work(self) -> Iterator[None]:
        """Our own statements are no business of the handler's."""
        self._at_work = True
        try:
            yield
        finally:
            self._at_work = False

    def _lost(self, why: str) -> LeaseLostError:
        doubt = (
            "; or an earlier COMMIT of this block has landed whose answer was lost" if self._in_doubt else ""
        )
        return LeaseLostError(
            f"{self._job} can't be completed, {why}{doubt}: this transaction is not committed"
        )

    def _more(self) -> RuntimeError:
        return RuntimeError(
            f"{self._job} was completed by an earlier commit of the same block, and these changes would be outside of it: "
            "they are rolled back. Commit once, at the end"
        )

    def _unproved(self) -> RuntimeError:
        return RuntimeError(
            f"{self._job}: the transaction that was to complete it is somebody else's to end, or its COMMIT had no answer"
        )

    def _rolled_back(self) -> RuntimeError:
        return RuntimeError(f"{self._job}: the transaction that was to complete it was rolled back")


def _has_changes(session: Session) -> bool:
    """There is something to flush."""
    return bool(session.new or session.deleted) or any(map(session.is_modified, session.dirty))
