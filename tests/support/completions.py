"""A claimed job with a context that completes it, and a holder of its lease that does what it is asked and remembers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import URL, Engine

from sa_jobqueue.completion import Completions, OwnSessions
from sa_jobqueue.completion.owner import Completion
from sa_jobqueue.context import JobContext, context_of
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.records import ClaimedJob, Landing
from sa_jobqueue.store.leases import Store
from tests.support.jobs import MINUTE


@dataclass
class Holder:
    """Holds leases by the store's own verbs. `told` is what it was asked, in order."""

    store: Store
    lease: timedelta = MINUTE
    told: list[str] = field(default_factory=list)
    completion: Completion | None = None
    refusing: bool = False

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
