"""A claimed job with a context that completes it, and a holder of its lease that does what it is asked and remembers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import URL, Engine, func, select, update
from sqlalchemy.orm import Session

from sa_jobqueue.completion import Completions, OwnSessions
from sa_jobqueue.completion.owner import Completion
from sa_jobqueue.context import JobContext, context_of
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.models import jobs
from sa_jobqueue.records import ClaimedJob, Landing, Progress
from sa_jobqueue.store.store import Store
from tests.entry.application import Document
from tests.support.jobs import MINUTE, read_job


@dataclass
class Holder:
    """Holds leases by the store's own verbs. `told` is what it was asked, in order."""

    store: Store
    lease: timedelta = MINUTE
    told: list[str] = field(default_factory=list)
    completion: Completion | None = None
    refusing: bool = False
    progress: Progress | None = None

    def begin(self, completion: Completion) -> None:
        self.told.append("begin")
        if self.completion is not None:
            raise RuntimeError(f"job {completion.key[0]}: a second completion of one run")
        if self.store.renew([completion.key], lease=self.lease)[0].landing is not Landing.LANDED:
            raise LeaseLostError(f"job {completion.key[0]}: lost before its completion began")
        self.completion = completion

    def hold_renewals(self, completion: Completion) -> None:
        self.told.append("hold_renewals")

    def resume_renewals(self, completion: Completion) -> None:
        self.told.append("resume_renewals")

    def fencing(self, completion: Completion) -> None:
        self.told.append("fencing")
        if self.refusing:
            raise LeaseLostError(f"job {completion.key[0]}: decided in the handler's place")

    def unwritten_progress(self, completion: Completion) -> Progress | None:
        return self.progress

    def decided(self, completion: Completion) -> None:
        self.told.append(f"decided: {completion.fate}")


@dataclass
class Run:
    """One run of one job, as its handler and its holder see it."""

    job: ClaimedJob
    context: JobContext
    holder: Holder
    sessions: OwnSessions

    @property
    def completion(self) -> Completion:
        assert self.holder.completion is not None
        return self.holder.completion

    def close(self) -> None:
        self.sessions.close()
        self.holder.store.close()


def run_of(engine: Engine, token: Any, *, lease: timedelta = MINUTE, url: URL | None = None) -> Run:
    """Claim the one due job with this token."""
    store = Store(engine, name="holder")
    (job,) = store.claim(token=token, quotas={"default": 1}, kinds=["test"], lease=lease)
    holder = Holder(store, lease)
    sessions = OwnSessions(url or engine.url, name="tests")
    completions = Completions(holder, sessions, lease=lease)
    context = context_of(job, runner_id="tests", completer=completions.of(job))
    return Run(job, context, holder, sessions)


def attempt(run: Run, sessions: Callable[[], Session], body: Callable[[Session], object]) -> Exception | None:
    """The block as a handler has it, and the error that comes out of it."""
    try:
        with run.context.complete(sessions) as session:
            body(session)
    except Exception as error:
        return error
    return None


def titles(engine: Engine) -> list[str]:
    """What handlers have written and committed."""
    with engine.connect() as connection:
        return list(connection.scalars(select(Document.title).order_by(Document.id)))


def take_over(engine: Engine, job_id: int) -> UUID | None:
    """Somebody else has the job from now on, as if its lease had ended; None when it does not run any more.

    Waits for nobody: OperationalError when somebody has the row locked.
    """
    token = uuid4()
    taken = _change_running(engine, job_id, lease_token=token, leased_by="another", attempts=2)
    return token if taken else None


def let_expire(engine: Engine, job_id: int) -> bool:
    """The lease is past, and nobody has taken the job yet; False when it does not run any more. Waits for nobody."""
    return _change_running(engine, job_id, lease_until=func.clock_timestamp())


def _change_running(engine: Engine, job_id: int, **columns: Any) -> bool:
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")
        statement = update(jobs).where(jobs.c.id == job_id, jobs.c.status == "running")
        return connection.execute(statement.values(**columns)).rowcount == 1


def is_untouched(engine: Engine, job_id: int, token: UUID | None) -> bool:
    """The job is as `take_over` left it, with no follow-up and nothing of the application's beside it."""
    row = read_job(engine, job_id)
    with engine.connect() as connection:
        others = connection.scalar(select(func.count()).select_from(jobs).where(jobs.c.id != job_id))
    return (row.status, row.lease_token, row.settled_token, row.result, others, titles(engine)) == (
        *("running", token, None, None, 0, []),
    )
